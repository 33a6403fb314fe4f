#!/usr/bin/env python3
"""Looks at a host before anything is changed on it, and prints as JSON what it found, and what is wrong with it in sentences.

Its argument is a JSON object: now (seconds, the clock of the machine that asks), want_cgroup2, controllers, min_free_mib, driver_min, gpus,
paths. It changes nothing and needs Python 3.6 alone."""
import json
import os
import pwd
import re
import socket
import ssl
import subprocess
import sys
import time

ask = json.loads(sys.argv[1])
# Templates make strings of numbers and truths.
for key in ('now', 'min_free_mib', 'uid_min', 'uid_max'):
    if key in ask:
        ask[key] = float(ask[key])
for key in ('want_cgroup2', 'gpus'):
    ask[key] = str(ask.get(key, True)).lower() == 'true'
sysfs = ask.get('sysfs', '/sys')
proc = ask.get('proc', '/proc')
problems = []


def read(path):
    try:
        with open(path) as f:
            return f.read().strip()
    except (OSError, UnicodeDecodeError):
        return ''


def run(*line):
    try:
        p = subprocess.run(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True, timeout=60)
        return p.returncode, p.stdout.strip()
    except FileNotFoundError:
        return 127, ''
    except subprocess.TimeoutExpired:
        return 124, '%s has not answered for a minute' % line[0]


def memory():
    m = re.search(r'MemTotal:\s+(\d+)', read(proc + '/meminfo'))
    return int(m.group(1)) // 1024 if m else 0


def cgroup():
    controllers = read(sysfs + '/fs/cgroup/cgroup.controllers').split()
    unified = os.path.exists(sysfs + '/fs/cgroup/cgroup.controllers')
    if not unified and ask['want_cgroup2']:
        problems.append('cgroup v2 is missing: /sys/fs/cgroup is not the unified hierarchy; boot with systemd.unified_cgroup_hierarchy=1 '
                        '(in GRUB_CMDLINE_LINUX, then update-grub and reboot), or set sluice_require_cgroup_v2=false to use cgroup v1')
    lacks = [c for c in ask.get('controllers', []) if c not in controllers]
    if unified and lacks:
        problems.append('cgroup v2 lacks the controllers %s, so jobs could not be confined: look for cgroup_disable= in /proc/cmdline and '
                        'for cgroup v1 mounts that hold them' % ', '.join(lacks))
    return {'v2': unified, 'controllers': controllers}


def disks():
    out = {}
    for path in ask.get('paths', []):
        at = path
        while not os.path.isdir(at):
            at = os.path.dirname(at)
        s = os.statvfs(at)
        free = s.f_bavail * s.f_frsize >> 20
        out[path] = free
        if free < ask.get('min_free_mib', 0):
            problems.append('the file system of %s has %d MiB left and %d are needed: free some space there (du -xh %s | sort -h | tail)'
                            % (path, free, ask['min_free_mib'], at))
        elif s.f_files and s.f_favail < 1000:
            problems.append('the file system of %s has only %d inodes left: delete files there' % (path, s.f_favail))
        elif os.statvfs(at).f_flag & os.ST_RDONLY:
            problems.append('the file system of %s is mounted read-only: look into dmesg, and remount it' % path)
    return out


def version(text):
    return [int(n) for n in re.findall(r'\d+', text)[:3]]


def gpus():
    """NVIDIA's GPUs on the bus, and whether their driver works."""
    if not ask['gpus']:
        return {}
    cards, base = 0, sysfs + '/bus/pci/devices'
    for device in os.listdir(base) if os.path.isdir(base) else []:
        if read('%s/%s/vendor' % (base, device)) == '0x10de' and read('%s/%s/class' % (base, device))[:4] == '0x03':
            cards += 1
    m = re.search(r'(?:Kernel Module|Module for \S+)\s+(\d[\d.]+)', read(proc + '/driver/nvidia/version'))
    driver = m.group(1) if m else ''
    if not cards and not driver:
        return {'cards': 0, 'driver': ''}
    least = ask.get('driver_min', '')
    if not driver and os.path.isdir(sysfs + '/module/nouveau'):
        problems.append('the GPUs are driven by nouveau, with which no job can compute: install the NVIDIA driver (%s or newer), blacklist '
                        'nouveau and reboot' % least)
    elif not driver:
        problems.append('there are %d NVIDIA GPUs and no driver is loaded: install it (%s or newer) and run modprobe nvidia, or set '
                        'sluice_gpu_check=false to go on without GPUs' % (cards, least))
    elif least and version(driver) < version(least):
        problems.append('the NVIDIA driver is %s and %s or newer is needed: upgrade it and reboot' % (driver, least))
    else:
        rc, said = run('nvidia-smi', '-L')
        if rc == 127:
            problems.append('the NVIDIA driver is loaded but nvidia-smi and its library are missing: install the utilities of version %s'
                            % driver)
        elif rc and 'mismatch' in said:
            problems.append('the NVIDIA driver in the kernel (%s) and its library differ, as after an upgrade: reboot' % driver)
        elif rc:
            problems.append('nvidia-smi fails (%s): look into dmesg for NVRM lines' % (said.split('\n')[0] or 'exit status %d' % rc))
    return {'cards': cards, 'driver': driver}


def accounts():
    low, high = ask.get('uid_min', 1000), ask.get('uid_max', 59999)
    return {p.pw_name: p.pw_uid for p in pwd.getpwall() if low <= p.pw_uid <= high}


def joined_as():
    """The name for which this host has a certificate of a cluster, by role."""
    out = {}
    for role in 'node', 'login':
        try:
            subject = ssl._ssl._test_decode_cert('/etc/sluice/tls/%s.crt' % role)['subject']
            out[role] = [value for part in subject for key, value in part if key == 'commonName'][0]
        except Exception:  # it is not there, or no certificate, which the daemon says
            out[role] = ''
    return out


def shape():
    """Processors and memory as a NodeName line of slurm.conf has them."""
    base, threads = sysfs + '/devices/system/cpu', 0
    for name in os.listdir(base) if os.path.isdir(base) else []:
        if re.match(r'^cpu\d+$', name) and read('%s/%s/online' % (base, name)) != '0':
            threads += 1
    return {'CPUs': threads or os.cpu_count(), 'RealMemory': memory()}


release = dict(re.findall(r'^(\w+)="?([^"\n]*)"?$', read('/etc/os-release'), re.M))
found = {
    'clock': round(time.time() - ask['now'], 3), 'hostname': socket.gethostname(), 'cgroup': cgroup(),
    'free_mib': disks(), 'gpu': gpus(), 'accounts': accounts(), 'node': shape(), 'joined_as': joined_as(), 'init': read(proc + '/1/comm'),
    'os': release.get('ID', ''), 'os_like': (release.get('ID', '') + ' ' + release.get('ID_LIKE', '')).split(),
    'os_version': release.get('VERSION_ID', ''), 'arch': os.uname().machine, 'kernel': os.uname().release,
}
if found['init'] != 'systemd':
    problems.append('its first process is %s and not systemd, which starts the daemons' % (found['init'] or 'unknown'))
if not os.access('/etc', os.W_OK):
    problems.append('this user cannot change /etc: let Ansible become root (ansible_become=true, and sudo on the host)')
found['problems'] = problems
print(json.dumps(found))
