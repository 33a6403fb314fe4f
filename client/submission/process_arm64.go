package submission

const sysGetrandom = 278
