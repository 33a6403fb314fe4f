#!/bin/sh
#SBATCH --time=abc
true
