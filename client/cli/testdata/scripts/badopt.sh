#!/bin/sh
#SBATCH --foo
true
