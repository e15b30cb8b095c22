/* Programs fork. A child may let go of what it inherited, which does nothing to its parent, and may open the device
 * for itself. Both are tried many times, because the parent's threads are somewhere else each time.
 *
 * Prints "both live" at the end. */
#include <infiniband/verbs.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(condition) \
	do { \
		if (!(condition)) { \
			fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #condition, strerror(errno)); \
			exit(1); \
		} \
	} while (0)

static char memory[4096];

struct objects {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
};

static struct objects make(struct ibv_device *device)
{
	struct objects made = { .context = ibv_open_device(device) };
	CHECK(made.context);
	made.pd = ibv_alloc_pd(made.context);
	made.mr = ibv_reg_mr(made.pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE);
	made.channel = ibv_create_comp_channel(made.context);
	made.cq = ibv_create_cq(made.context, 10, NULL, made.channel, 0);
	struct ibv_qp_init_attr init = {
		.send_cq = made.cq, .recv_cq = made.cq, .qp_type = IBV_QPT_RC, .cap = { 1, 1, 1, 1, 0 },
	};
	made.qp = ibv_create_qp(made.pd, &init);
	CHECK(made.pd && made.mr && made.channel && made.cq && made.qp);
	return made;
}

static void let_go(struct objects made)
{
	CHECK(!ibv_destroy_qp(made.qp) && !ibv_destroy_cq(made.cq) && !ibv_dereg_mr(made.mr));
	CHECK(!ibv_destroy_comp_channel(made.channel) && !ibv_dealloc_pd(made.pd) && !ibv_close_device(made.context));
}

int main(void)
{
	CHECK(!ibv_fork_init());
	struct ibv_device **list = ibv_get_device_list(NULL);
	CHECK(list && list[0]);
	for (int round = 0; round < 30; round++) {
		struct objects made = make(list[0]);
		pid_t child = fork();
		CHECK(child >= 0);
		if (child == 0) {
			alarm(30);
			let_go(made);
			let_go(make(list[0]));
			exit(0);
		}
		int status;
		CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
		let_go(made);
	}
	ibv_free_device_list(list);
	puts("both live");
	return 0;
}
