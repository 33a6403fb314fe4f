#!/bin/sh
#SBATCH --comment="unterminated
true
