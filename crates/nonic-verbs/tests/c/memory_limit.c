/* Creates one kind of object until there is no memory for more: that must be ENOMEM and no end of the process. Then destroys a
 * part of them, and goes on. Prints how many there were. */
#include <infiniband/verbs.h>
#include <dirent.h>
#include <errno.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "need.h"

/* What the process may take beside what it has. */
#define MORE (64ul << 20)
#define MOST 4000000

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static char memory[4096];
static void *made[MOST];

static void *make(const char *kind)
{
	if (!strcmp(kind, "mr"))
		return ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE);
	if (!strcmp(kind, "mw"))
		return ibv_alloc_mw(pd, IBV_MW_TYPE_1);
	if (!strcmp(kind, "pd"))
		return ibv_alloc_pd(context);
	if (!strcmp(kind, "cq"))
		return ibv_create_cq(context, 16, NULL, NULL, 0);
	if (!strcmp(kind, "srq")) {
		struct ibv_srq_init_attr init = { .attr = { .max_wr = 16, .max_sge = 1 } };
		return ibv_create_srq(pd, &init);
	}
	if (!strcmp(kind, "ah")) {
		struct ibv_ah_attr attr = { .is_global = 1, .port_num = 1 };
		NEED(!ibv_query_gid(context, 1, 0, &attr.grh.dgid));
		return ibv_create_ah(pd, &attr);
	}
	struct ibv_qp_init_attr init = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = { .max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
	};
	return ibv_create_qp(pd, &init);
}

static int destroy(const char *kind, void *object)
{
	if (!strcmp(kind, "mr"))
		return ibv_dereg_mr(object);
	if (!strcmp(kind, "mw"))
		return ibv_dealloc_mw(object);
	if (!strcmp(kind, "pd"))
		return ibv_dealloc_pd(object);
	if (!strcmp(kind, "cq"))
		return ibv_destroy_cq(object);
	if (!strcmp(kind, "srq"))
		return ibv_destroy_srq(object);
	if (!strcmp(kind, "ah"))
		return ibv_destroy_ah(object);
	return ibv_destroy_qp(object);
}

/* Bytes of address space that the process has. */
static unsigned long taken(void)
{
	unsigned long pages;
	FILE *file = fopen("/proc/self/statm", "r");
	NEED(file && fscanf(file, "%lu", &pages) == 1);
	fclose(file);
	return pages * 4096;
}

/* Waits until every other thread of the process sleeps. A thread that begins allocates, and glibc gives each its own arena:
 * 64 MiB of address space, as much as this test leaves. So no thread may begin after the limit is set. */
static void others_sleep(void)
{
	int awake = 1;
	for (long looks = 0; awake; looks++) {
		NEED(looks < 1000000);
		DIR *tasks = opendir("/proc/self/task");
		NEED(tasks);
		awake = 0;
		for (struct dirent *task; (task = readdir(tasks)); ) {
			char path[300], state = 'S';
			int id = atoi(task->d_name);
			if (id == 0 || id == getpid())
				continue;
			snprintf(path, sizeof path, "/proc/self/task/%d/stat", id);
			FILE *file = fopen(path, "r");
			if (!file)
				continue;
			NEED(fscanf(file, "%*d (%*[^)]) %c", &state) == 1);
			fclose(file);
			awake |= state != 'S';
		}
		closedir(tasks);
		sched_yield();
	}
}

int main(int argc, char **argv)
{
	NEED(argc == 2);
	struct ibv_device **devices = ibv_get_device_list(NULL);
	NEED(devices && devices[0]);
	context = ibv_open_device(devices[0]);
	NEED(context);
	pd = ibv_alloc_pd(context);
	cq = ibv_create_cq(context, 16, NULL, NULL, 0);
	NEED(pd && cq);
	others_sleep();
	struct rlimit limit = { taken() + MORE, RLIM_INFINITY };
	NEED(!setrlimit(RLIMIT_AS, &limit));

	long count = 0;
	while (count < MOST && (errno = 0, made[count] = make(argv[1])))
		count++;
	int error = errno;
	NEED(count < MOST);
	NEED(error == ENOMEM);
	/* What is left is enough to be refused again, and to go on. A table that could not grow may have made room for a few more. */
	for (int refused = 0; refused < 100; ) {
		void *object = make(argv[1]);
		NEED(object ? count < MOST : errno == ENOMEM);
		if (object)
			made[count++] = object;
		else
			refused++;
	}
	long kept = count / 2;
	while (count > kept)
		NEED(!destroy(argv[1], made[--count]));
	made[count] = make(argv[1]);
	NEED(made[count]);
	printf("%ld\nalive\n", kept * 2);
	return 0;
}
