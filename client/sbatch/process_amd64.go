package sbatch

const sysGetrandom = 318
