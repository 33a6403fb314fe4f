#!/bin/sh
#SBATCH --job-name="a b" extra
true
