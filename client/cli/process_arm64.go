package cli

const sysGetrandom = 278
