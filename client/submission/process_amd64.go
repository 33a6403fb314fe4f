package submission

const sysGetrandom = 318
