// What lib.go calls of server.c. Both are built where libpmix is (build tag pmix).
#include <stddef.h>
#include <stdint.h>

int pmix_serve(const char *host);
int pmix_add_job(const char *nspace, const char *nodes, const char *ranks, const char *peers, uint32_t size, uint32_t nodes_n,
	uint32_t node, const uint32_t *node_of, const uint32_t *local_of, const char *const *names, const uint32_t *local, uint32_t local_n);
int pmix_add_task(const char *nspace, uint32_t rank, uint32_t uid, uint32_t gid);
char **pmix_env(const char *nspace, uint32_t rank, int *status);
void pmix_free_env(char **env);
void pmix_answer(void *call, int status, const void *data, size_t n);
int pmix_fetch(const char *nspace, uint32_t rank, uintptr_t id);
const char *pmix_text(int status);
