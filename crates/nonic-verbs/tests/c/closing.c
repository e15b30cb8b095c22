/* A program that closes descriptors it did not open, after opening a device. The first argument says which; the
 * program ends with 0 if the NIC works on ("high"), or if the loss is reported as it should be (all others). */
#define _GNU_SOURCE
#include <infiniband/verbs.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "need.h"

enum { LENGTH = 4096, FILES = 700 };

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_mr *mr;
static struct ibv_qp *a, *b;
static union ibv_gid gid;
static char memory[2 * LENGTH] __attribute__((aligned(4096)));

static void limit(rlim_t soft)
{
	struct rlimit limits;
	NEED(getrlimit(RLIMIT_NOFILE, &limits) == 0);
	limits.rlim_cur = soft;
	NEED(setrlimit(RLIMIT_NOFILE, &limits) == 0);
}

static struct ibv_context *open_loopback(void)
{
	int count;
	struct ibv_device **list = ibv_get_device_list(&count);
	NEED(list);
	struct ibv_context *opened = NULL;
	for (int i = 0; i < count; i++)
		if (!strcmp(ibv_get_device_name(list[i]), "roce_lo"))
			opened = ibv_open_device(list[i]);
	int error = errno;
	ibv_free_device_list(list);
	errno = error;
	return opened;
}

static struct ibv_qp *make_qp(void)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = { .max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
	};
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	NEED(qp);
	return qp;
}

static void connect_to(struct ibv_qp *qp, uint32_t peer)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT,
				    .port_num = 1,
				    .qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE };
	NEED(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = peer,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 1,
		.ah_attr = { .is_global = 1, .port_num = 1, .grh = { .dgid = gid, .hop_limit = 1 } },
	};
	NEED(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
					       IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1
	};
	NEED(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
					       IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
}

static void prepare(void)
{
	NEED(context = open_loopback());
	NEED(pd = ibv_alloc_pd(context));
	NEED(cq = ibv_create_cq(context, 64, NULL, NULL, 0));
	NEED(mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE));
	NEED(!ibv_query_gid(context, 1, 0, &gid));
	a = make_qp();
	b = make_qp();
	connect_to(a, b->qp_num);
	connect_to(b, a->qp_num);
}

static double seconds(clockid_t clock)
{
	struct timespec now;
	clock_gettime(clock, &now);
	return now.tv_sec + now.tv_nsec / 1e9;
}

static int post(void)
{
	struct ibv_sge sge = { .addr = (uintptr_t)memory, .length = LENGTH, .lkey = mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE }, *bad;
	wr.wr.rdma.remote_addr = (uintptr_t)memory + LENGTH;
	wr.wr.rdma.rkey = mr->rkey;
	return ibv_post_send(a, &wr, &bad);
}

/* The status of the next completion, or -1 if there is none for a while. */
static int status(void)
{
	double until = seconds(CLOCK_MONOTONIC) + 10;
	struct ibv_wc wc;
	while (seconds(CLOCK_MONOTONIC) < until)
		if (ibv_poll_cq(cq, 1, &wc) == 1)
			return wc.status;
	return -1;
}

static void transfer(void)
{
	static char round;
	memset(memory, ++round, LENGTH);
	NEED(post() == 0);
	NEED(status() == IBV_WC_SUCCESS);
	NEED(memory[LENGTH] == round && memory[2 * LENGTH - 1] == round);
}

/* The loss is reported: what waits is flushed, the event comes, nothing more is taken, and nobody is busy. */
static void expect_loss(void)
{
	int code = post();
	NEED(code == 0 || code == EIO);
	if (code == 0)
		NEED(status() == IBV_WC_WR_FLUSH_ERR);
	struct ibv_async_event event;
	NEED(ibv_get_async_event(context, &event) == 0);
	NEED(event.event_type == IBV_EVENT_DEVICE_FATAL);
	ibv_ack_async_event(&event);
	NEED(post() == EIO);
	double used = seconds(CLOCK_PROCESS_CPUTIME_ID);
	sleep(1);
	used = seconds(CLOCK_PROCESS_CPUTIME_ID) - used;
	if (used >= 0.1)
		printf("%.0f %% of a processor while nothing happens\n", used * 100);
	NEED(used < 0.1);
}

static void finish(void)
{
	NEED(ibv_destroy_qp(a) == 0 && ibv_destroy_qp(b) == 0);
	NEED(ibv_dereg_mr(mr) == 0 && ibv_destroy_cq(cq) == 0 && ibv_dealloc_pd(pd) == 0);
	NEED(ibv_close_device(context) == 0);
}

/* Every number from 3 on, but not the one that the program waits for events with. */
static void close_up_to(int end)
{
	for (int fd = 3; fd < end; fd++)
		if (fd != context->async_fd)
			close(fd);
}

int main(int count, char **arguments)
{
	NEED(count == 2);
	const char *how = arguments[1];
	setvbuf(stdout, NULL, _IOLBF, 0);
	alarm(60);
	/* Through memory, nothing would be missing at once. */
	setenv("NONIC_LANE", "off", 1);
	if (!strcmp(how, "high")) {
		/* A daemon closes what there might be. Ours are above. */
		limit(4096);
		prepare();
		transfer();
		close_up_to(1024);
		for (int i = 0; i < 100; i++)
			transfer();
		finish();
	} else if (!strcmp(how, "low")) {
		/* The same where no number is high enough; then the program opens files under the numbers it closed. */
		limit(1024);
		prepare();
		transfer();
		close_up_to(1024);
		int files[FILES];
		for (int i = 0; i < FILES; i++)
			NEED((files[i] = open("theirs", O_RDWR | O_CREAT, 0600)) >= 0);
		expect_loss();
		finish();
		struct stat stat;
		for (int i = 0; i < FILES; i++)
			NEED(fstat(files[i], &stat) == 0 && stat.st_size == 0 && lseek(files[i], 0, SEEK_CUR) == 0);
	} else if (!strcmp(how, "range")) {
		prepare();
		transfer();
		NEED(close_range(3, ~0U, 0) == 0);
		expect_loss();
		finish();
	} else if (!strcmp(how, "replaced")) {
		int null = open("/dev/null", O_RDWR);
		NEED(null >= 0);
		prepare();
		transfer();
		struct stat stat;
		for (int fd = null + 1; fd < 4096; fd++)
			if (fd != context->async_fd && fstat(fd, &stat) == 0)
				NEED(dup2(null, fd) == fd);
		expect_loss();
		finish();
		NEED(fcntl(null + 1, F_GETFD) >= 0);
	} else if (!strcmp(how, "idle")) {
		/* Nobody posts: the device notices by itself when it is polled. */
		prepare();
		transfer();
		NEED(close_range(3, ~0U, 0) == 0);
		struct ibv_wc wc;
		NEED(ibv_poll_cq(cq, 1, &wc) == 0);
		expect_loss();
		finish();
	} else if (!strcmp(how, "few")) {
		/* Wherever it runs out. */
		struct ibv_context *opened = NULL;
		int refused = 0;
		for (int soft = 6; !opened && soft < 256; soft++) {
			limit(soft);
			errno = 0;
			if (!(opened = open_loopback())) {
				NEED(errno == EMFILE);
				refused++;
			}
		}
		NEED(opened && refused > 3 && ibv_close_device(opened) == 0);
		limit(256);
		prepare();
		transfer();
		finish();
	} else {
		return 2;
	}
	return 0;
}
