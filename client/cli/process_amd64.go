package cli

const sysGetrandom = 318
