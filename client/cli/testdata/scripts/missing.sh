#!/bin/sh
#SBATCH -n
true
