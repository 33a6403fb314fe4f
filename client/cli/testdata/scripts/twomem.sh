#!/bin/sh
#SBATCH --mem=1 --mem-per-cpu=2
true
