#!/usr/bin/env python3
"""Two spirals: a small network learns which of two interleaved spirals a point belongs to.

Needs Python 3 and nothing else. It does what a training job on a cluster should do:

* it prints the loss as it goes, line by line;
* it writes a checkpoint every few epochs, and resumes from it, so that a job that was requeued goes on where it was;
* on SIGUSR1 or SIGTERM it writes one more checkpoint and ends with exit code 75, so that the batch script can tell an
  interrupted run from a failed one.
"""
import argparse
import json
import math
import os
import random
import signal
import sys
import time

EXIT_INTERRUPTED = 75  # EX_TEMPFAIL of sysexits.h: try again


def spirals(points, noise, rng):
    """Gives points on two spirals: [(x, y, label)]; a label is -1 or 1."""
    data = []
    for i in range(points):
        turn = i / points
        radius, angle = 0.1 + 0.9 * turn, 2.25 * math.pi * turn
        for label in (-1.0, 1.0):
            a = angle + (math.pi if label > 0 else 0.0)
            data.append((radius * math.cos(a) + rng.gauss(0, noise), radius * math.sin(a) + rng.gauss(0, noise), label))
    return data


class Network:
    """Two inputs, two hidden layers of tanh units, one tanh output; trained by stochastic gradient descent with momentum."""

    def __init__(self, hidden, rng):
        def layer(outputs, inputs):
            scale = 1.0 / math.sqrt(inputs)
            return [[rng.gauss(0, scale) for _ in range(inputs + 1)] for _ in range(outputs)]  # the last weight is the bias

        self.layers = [layer(hidden, 2), layer(hidden, hidden), layer(1, hidden)]
        self.momentum = [[[0.0] * len(unit) for unit in layer] for layer in self.layers]

    def forward(self, x, y):
        """Gives the activations of every layer, the input first."""
        activations = [[x, y]]
        for layer in self.layers:
            below = activations[-1]
            activations.append([math.tanh(unit[-1] + sum(w * v for w, v in zip(unit, below))) for unit in layer])
        return activations

    def learn(self, x, y, target, rate, inertia):
        """Takes one step down the gradient of the squared error, and gives that error."""
        activations = self.forward(x, y)
        error = activations[-1][0] - target
        delta = [error * (1.0 - activations[-1][0] ** 2)]
        for at in range(len(self.layers) - 1, -1, -1):
            layer, below = self.layers[at], activations[at]
            if at > 0:
                passed = [sum(d * unit[j] for d, unit in zip(delta, layer)) * (1.0 - v * v) for j, v in enumerate(below)]
            for d, unit, speed in zip(delta, layer, self.momentum[at]):
                for j, v in enumerate(below):
                    speed[j] = inertia * speed[j] - rate * d * v
                    unit[j] += speed[j]
                speed[-1] = inertia * speed[-1] - rate * d
                unit[-1] += speed[-1]
            if at > 0:
                delta = passed
        return error * error


def accuracy(network, data):
    return sum((network.forward(x, y)[-1][0] > 0) == (label > 0) for x, y, label in data) / len(data)


def save(path, epoch, network, rng):
    """Replaces the checkpoint as a whole: a job that is killed meanwhile leaves the old one or the new one."""
    state = {"epoch": epoch, "layers": network.layers, "momentum": network.momentum, "random": rng.getstate()}
    with open(path + ".new", "w") as f:
        json.dump(state, f)
        f.flush()
        os.fsync(f.fileno())
    os.replace(path + ".new", path)


def load(path, network, rng):
    """Restores a checkpoint and gives the epoch to go on with; 0 where there is none."""
    try:
        with open(path) as f:
            state = json.load(f)
    except FileNotFoundError:
        return 0
    network.layers, network.momentum = state["layers"], state["momentum"]
    version, internal, gauss = state["random"]
    rng.setstate((version, tuple(internal), gauss))
    return state["epoch"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=80)
    parser.add_argument("--points", type=int, default=160, help="points on each spiral")
    parser.add_argument("--hidden", type=int, default=20, help="units in each hidden layer")
    parser.add_argument("--rate", type=float, default=0.02)
    parser.add_argument("--inertia", type=float, default=0.3, help="what a step keeps of the one before")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--every", type=int, default=5, help="epochs between two checkpoints")
    parser.add_argument("--checkpoint", default="spirals.json")
    args = parser.parse_args()

    rng = random.Random(args.seed)
    data = spirals(args.points, 0.02, rng)
    network = Network(args.hidden, rng)
    begin = load(args.checkpoint, network, rng)

    interrupted = []
    for s in (signal.SIGUSR1, signal.SIGTERM):
        signal.signal(s, lambda number, _: interrupted.append(signal.Signals(number).name))

    print(f"{'resuming at' if begin else 'starting with'} epoch {begin + 1} of {args.epochs}, {len(data)} points, "
          f"on {os.environ.get('SLURMD_NODENAME', os.uname().nodename)}", flush=True)
    started = time.monotonic()
    for epoch in range(begin + 1, args.epochs + 1):
        rng.shuffle(data)
        loss = sum(network.learn(x, y, label, args.rate, args.inertia) for x, y, label in data) / len(data)
        print(f"epoch {epoch:3d}  loss {loss:.4f}  {time.monotonic() - started:6.1f} s", flush=True)
        if interrupted:
            save(args.checkpoint, epoch, network, rng)
            print(f"{interrupted[0]}: checkpoint written after epoch {epoch}", flush=True)
            return EXIT_INTERRUPTED
        if epoch % args.every == 0 or epoch == args.epochs:
            save(args.checkpoint, epoch, network, rng)
    print(f"done: {100 * accuracy(network, data):.1f} % of the points are on the right spiral", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
