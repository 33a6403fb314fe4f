package sbatch

const sysGetrandom = 278
