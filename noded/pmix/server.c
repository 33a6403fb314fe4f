//go:build pmix && cgo

// The server module that libpmix calls, and what it is told. All decisions are server.go's: this file translates.
#include <pmix.h>
#include <pmix_server.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "server.h"
#include "_cgo_export.h"

// call is what the library waits for.
typedef struct {
	pmix_modex_cbfunc_t done;
	void *data;
} call_t;

static call_t *keep(pmix_modex_cbfunc_t done, void *data)
{
	call_t *c = malloc(sizeof *c);
	if (c != NULL) {
		c->done = done;
		c->data = data;
	}
	return c;
}

// pmix_answer ends a call. The library releases the data when it has read it.
void pmix_answer(void *call, int status, const void *data, size_t n)
{
	call_t *c = call;
	void *copy = NULL;

	if (n > 0 && (copy = malloc(n)) == NULL) {
		status = PMIX_ERR_NOMEM;
		n = 0;
	}
	if (copy != NULL)
		memcpy(copy, data, n);
	c->done(status, copy, n, c->data, free, copy);
	free(c);
}

static pmix_status_t connected(const pmix_proc_t *p, void *object, pmix_info_t info[], size_t n, pmix_op_cbfunc_t done, void *data)
{
	(void)object, (void)info, (void)n, (void)done, (void)data;
	pmixConnected(p->rank);
	return PMIX_OPERATION_SUCCEEDED;
}

static pmix_status_t finalized(const pmix_proc_t *p, void *object, pmix_op_cbfunc_t done, void *data)
{
	(void)object, (void)done, (void)data;
	pmixFinalized(p->rank);
	return PMIX_OPERATION_SUCCEEDED;
}

static pmix_status_t aborted(const pmix_proc_t *p, void *object, int status, const char msg[], pmix_proc_t procs[], size_t n,
	pmix_op_cbfunc_t done, void *data)
{
	(void)object, (void)procs, (void)n, (void)done, (void)data;
	pmixAborted(p->rank, status, (char *)msg);
	return PMIX_OPERATION_SUCCEEDED;
}

// fence: the library has what all tasks of this node that take part have put, and hands it over.
static pmix_status_t fence(const pmix_proc_t procs[], size_t np, const pmix_info_t info[], size_t ni, char *data, size_t n,
	pmix_modex_cbfunc_t done, void *cbdata)
{
	uint32_t *ranks = calloc(np + 1, sizeof *ranks);
	call_t *c = keep(done, cbdata);
	int status;

	(void)info, (void)ni;
	if (ranks == NULL || c == NULL) {
		status = PMIX_ERR_NOMEM;
	} else {
		for (size_t i = 0; i < np; i++)
			ranks[i] = procs[i].rank;
		status = pmixFence(ranks, np, data, n, c);
	}
	if (status != PMIX_SUCCESS)
		free(c);
	free(ranks);
	free(data);
	return status;
}

static pmix_status_t modex(const pmix_proc_t *p, const pmix_info_t info[], size_t n, pmix_modex_cbfunc_t done, void *data)
{
	call_t *c = keep(done, data);
	int status;

	(void)info, (void)n;
	if (c == NULL)
		return PMIX_ERR_NOMEM;
	if ((status = pmixModex(p->rank, c)) != PMIX_SUCCESS)
		free(c);
	return status;
}

static pmix_server_module_t module = {
	.client_connected2 = connected,
	.client_finalized = finalized,
	.abort = aborted,
	.fence_nb = fence,
	.direct_modex = modex,
};

// pmix_serve starts the server. Data lies in its memory (gds=hash), so that nothing is left in files when it is killed, and it listens on
// the loopback device alone.
int pmix_serve(const char *host)
{
	pmix_info_t info[2];
	int rc;

	setenv("PMIX_MCA_gds", "hash", 1);
	setenv("PMIX_MCA_psec", "native", 1);
	// The tasks look at the machine themselves. Here buses, and what of hwloc loads drivers, would only take time: half of the start.
	setenv("HWLOC_COMPONENTS", "-pci,-opencl,-gl,-cuda,-nvml,-rsmi,-levelzero", 1);
	PMIX_INFO_LOAD(&info[0], PMIX_HOSTNAME, host, PMIX_STRING);
	PMIX_INFO_LOAD(&info[1], PMIX_SERVER_NSPACE, "sluice", PMIX_STRING);
	rc = PMIx_server_init(&module, info, 2);
	PMIX_INFO_DESTRUCT(&info[0]);
	PMIX_INFO_DESTRUCT(&info[1]);
	return rc;
}

// Registering is done on another thread of the library's.
typedef struct {
	pthread_mutex_t lock;
	pthread_cond_t done;
	int over, status;
} wait_t;

static void ended(pmix_status_t status, void *data)
{
	wait_t *w = data;
	pthread_mutex_lock(&w->lock);
	w->status = status;
	w->over = 1;
	pthread_cond_signal(&w->done);
	pthread_mutex_unlock(&w->lock);
}

static int await(wait_t *w, int rc)
{
	if (rc == PMIX_OPERATION_SUCCEEDED)
		return PMIX_SUCCESS;
	if (rc != PMIX_SUCCESS)
		return rc;
	pthread_mutex_lock(&w->lock);
	while (!w->over)
		pthread_cond_wait(&w->done, &w->lock);
	pthread_mutex_unlock(&w->lock);
	return w->status;
}

static void load32(pmix_info_t *info, const char *key, uint32_t value) { PMIX_INFO_LOAD(info, key, &value, PMIX_UINT32); }

static void load16(pmix_info_t *info, const char *key, uint16_t value) { PMIX_INFO_LOAD(info, key, &value, PMIX_UINT16); }

// of_task is what is known of a rank.
static void of_task(pmix_info_t *into, const char *host, uint32_t rank, uint32_t local, uint32_t node)
{
	pmix_info_t *info;
	pmix_data_array_t *array;

	PMIX_DATA_ARRAY_CREATE(array, 8, PMIX_INFO);
	info = array->array;
	PMIX_INFO_LOAD(&info[0], PMIX_RANK, &rank, PMIX_PROC_RANK);
	load32(&info[1], PMIX_APPNUM, 0);
	PMIX_INFO_LOAD(&info[2], PMIX_APP_RANK, &rank, PMIX_PROC_RANK);
	PMIX_INFO_LOAD(&info[3], PMIX_GLOBAL_RANK, &rank, PMIX_PROC_RANK);
	load16(&info[4], PMIX_LOCAL_RANK, local);
	load16(&info[5], PMIX_NODE_RANK, local);
	load32(&info[6], PMIX_NODEID, node);
	PMIX_INFO_LOAD(&info[7], PMIX_HOSTNAME, host, PMIX_STRING);
	PMIX_LOAD_KEY(into->key, PMIX_PROC_DATA);
	into->value.type = PMIX_DATA_ARRAY;
	into->value.data.darray = array;
}

int pmix_add_job(const char *nspace, const char *nodes, const char *ranks, const char *peers, uint32_t size, uint32_t nodes_n,
	uint32_t node, const uint32_t *node_of, const uint32_t *local_of, const char *const *names, const uint32_t *local, uint32_t local_n)
{
	enum { fixed = 14 };
	wait_t w = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, 0};
	char *node_map = NULL, *proc_map = NULL;
	bool no = false;
	pmix_info_t *info;
	size_t n = fixed + (size_t)size;
	int rc;

	if ((rc = PMIx_generate_regex(nodes, &node_map)) != PMIX_SUCCESS || (rc = PMIx_generate_ppn(ranks, &proc_map)) != PMIX_SUCCESS)
		return rc;
	PMIX_INFO_CREATE(info, n);
	PMIX_INFO_LOAD(&info[0], PMIX_NODE_MAP, node_map, PMIX_REGEX);
	PMIX_INFO_LOAD(&info[1], PMIX_PROC_MAP, proc_map, PMIX_REGEX);
	load32(&info[2], PMIX_UNIV_SIZE, size);
	load32(&info[3], PMIX_JOB_SIZE, size);
	load32(&info[4], PMIX_MAX_PROCS, size);
	load32(&info[5], PMIX_LOCAL_SIZE, local_n);
	load32(&info[6], PMIX_NODE_SIZE, local_n);
	load32(&info[7], PMIX_NUM_NODES, nodes_n);
	load32(&info[8], PMIX_JOB_NUM_APPS, 1);
	PMIX_INFO_LOAD(&info[9], PMIX_LOCAL_PEERS, peers, PMIX_STRING);
	PMIX_INFO_LOAD(&info[10], PMIX_LOCALLDR, &local[0], PMIX_PROC_RANK);
	PMIX_INFO_LOAD(&info[11], PMIX_SPAWNED, &no, PMIX_BOOL);
	load32(&info[12], PMIX_NODEID, node);
	PMIX_INFO_LOAD(&info[13], PMIX_JOBID, nspace, PMIX_STRING);
	for (uint32_t r = 0; r < size; r++)
		of_task(&info[fixed + r], names[node_of[r]], r, local_of[r], node_of[r]);
	rc = await(&w, PMIx_server_register_nspace(nspace, local_n, info, n, ended, &w));
	PMIX_INFO_FREE(info, n);
	free(node_map);
	free(proc_map);
	return rc;
}

int pmix_add_task(const char *nspace, uint32_t rank, uint32_t uid, uint32_t gid)
{
	wait_t w = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, 0};
	pmix_proc_t p;

	PMIX_LOAD_PROCID(&p, nspace, rank);
	return await(&w, PMIx_server_register_client(&p, uid, gid, NULL, ended, &w));
}

char **pmix_env(const char *nspace, uint32_t rank, int *status)
{
	char **env = NULL;
	pmix_proc_t p;

	PMIX_LOAD_PROCID(&p, nspace, rank);
	*status = PMIx_server_setup_fork(&p, &env);
	return env;
}

void pmix_free_env(char **env)
{
	for (char **e = env; e != NULL && *e != NULL; e++)
		free(*e);
	free(env);
}

static void fetched(pmix_status_t status, char *data, size_t n, void *id) { pmixFetched((uintptr_t)id, status, data, n); }

int pmix_fetch(const char *nspace, uint32_t rank, uintptr_t id)
{
	pmix_proc_t p;

	PMIX_LOAD_PROCID(&p, nspace, rank);
	return PMIx_server_dmodex_request(&p, fetched, (void *)id);
}

const char *pmix_text(int status) { return PMIx_Error_string(status); }
