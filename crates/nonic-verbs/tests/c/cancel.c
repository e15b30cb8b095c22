/* Threads that are cancelled (pthread_cancel) inside verbs, again and again, while another thread keeps the device
 * busy. Verbs that do not wait must not be where a thread ends; those that wait must be, and must leave everything
 * as it was. Afterwards the queue pairs must work, and nothing may be lost, locked or left behind.
 *
 * Usage: cancel COUNT. Prints how many threads were cancelled. */
#define _GNU_SOURCE
#include <infiniband/verbs.h>
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define CHECK(condition) \
	do { \
		if (!(condition)) { \
			fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #condition, strerror(errno)); \
			exit(1); \
		} \
	} while (0)

enum { SIZE = 4096, PATIENCE_S = 20, PING_EVERY = 100, MANY = 100 };
enum { ALL = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ };

/* A queue pair connected to another of this process, with a completion queue of its own. */
struct line {
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq, *far_cq;
	struct ibv_qp *qp, *far;
	uint64_t posted;
};

static struct ibv_context *context;
static struct ibv_pd *pd;
static union ibv_gid gid;
static struct ibv_mr *mr;
static char memory[2 * SIZE];
static struct line busy, victims;
static atomic_bool stop, give_up;
static atomic_ulong writes;

static struct ibv_qp *create(struct ibv_cq *cq)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .sq_sig_all = 1,
		.cap = { .max_send_wr = 16, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct ibv_qp *made = ibv_create_qp(pd, &init);
	CHECK(made);
	return made;
}

static void point(struct ibv_qp *at, uint32_t destination)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT, .port_num = 1, .path_mtu = IBV_MTU_1024, .dest_qp_num = destination,
		.qp_access_flags = ALL, .max_dest_rd_atomic = 4, .max_rd_atomic = 4, .min_rnr_timer = 1, .timeout = 14,
		.retry_cnt = 7, .rnr_retry = 7, .ah_attr = { .is_global = 1, .port_num = 1, .grh = { .dgid = gid } },
	};
	CHECK(!ibv_modify_qp(at, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	attr.qp_state = IBV_QPS_RTR;
	CHECK(!ibv_modify_qp(at, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	attr.qp_state = IBV_QPS_RTS;
	CHECK(!ibv_modify_qp(at, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
}

static void open_line(struct line *line)
{
	line->channel = ibv_create_comp_channel(context);
	CHECK(line->channel);
	line->cq = ibv_create_cq(context, 64, NULL, line->channel, 0);
	line->far_cq = ibv_create_cq(context, 64, NULL, NULL, 0);
	CHECK(line->cq && line->far_cq);
	line->qp = create(line->cq);
	line->far = create(line->far_cq);
	point(line->qp, line->far->qp_num);
	point(line->far, line->qp->qp_num);
}

static void close_line(struct line *line)
{
	CHECK(!ibv_destroy_qp(line->qp) && !ibv_destroy_qp(line->far));
	CHECK(!ibv_destroy_cq(line->cq) && !ibv_destroy_cq(line->far_cq) && !ibv_destroy_comp_channel(line->channel));
}

static void post(struct line *line)
{
	struct ibv_sge sge = { (uintptr_t)memory, SIZE, mr->lkey };
	struct ibv_send_wr wr = {
		.wr_id = line->posted, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
		.wr.rdma = { (uintptr_t)memory + SIZE, mr->rkey },
	}, *bad;
	/* First: a thread that ends in the verb has posted or not, and neither may be posted twice. */
	line->posted++;
	CHECK(!ibv_post_send(line->qp, &wr, &bad));
}

/* Takes what has completed; tells whether the last request that was posted is among it. */
static bool completed(struct line *line)
{
	struct ibv_wc wc;
	bool last = false;
	int n;
	while ((n = ibv_poll_cq(line->cq, 1, &wc)) > 0) {
		CHECK(wc.status == IBV_WC_SUCCESS);
		last |= wc.wr_id == line->posted - 1;
	}
	CHECK(!n);
	return last;
}

static void ping(struct line *line)
{
	time_t limit = time(NULL) + PATIENCE_S;
	post(line);
	while (!completed(line))
		CHECK(time(NULL) < limit);
}

/* The same, asleep meanwhile. An event may be left from a thread that had armed the queue. */
static void ping_by_event(struct line *line)
{
	CHECK(!ibv_req_notify_cq(line->cq, 0));
	post(line);
	do {
		struct ibv_cq *cq;
		void *cq_context;
		CHECK(!ibv_get_cq_event(line->channel, &cq, &cq_context) && cq == line->cq);
		ibv_ack_cq_events(cq, 1);
		CHECK(!ibv_req_notify_cq(line->cq, 0));
	} while (!completed(line));
}

static void *traffic(void *argument)
{
	(void)argument;
	while (!stop) {
		ping(&busy);
		writes++;
	}
	return NULL;
}

/* Polls, and says nowhere that it may be cancelled. */
static void *polls(void *argument)
{
	(void)argument;
	while (!give_up)
		completed(&victims);
	return NULL;
}

static void *polls_and_tests(void *argument)
{
	(void)argument;
	while (!give_up) {
		completed(&victims);
		pthread_testcancel();
	}
	return NULL;
}

static void *posts(void *argument)
{
	(void)argument;
	while (!give_up) {
		ping(&victims);
		pthread_testcancel();
	}
	return NULL;
}

static void *waits_for_completions(void *argument)
{
	(void)argument;
	struct ibv_cq *cq;
	void *cq_context;
	ibv_req_notify_cq(victims.cq, 0);
	while (!ibv_get_cq_event(victims.channel, &cq, &cq_context))
		ibv_ack_cq_events(cq, 1);
	return NULL;
}

static void *waits_for_events(void *argument)
{
	(void)argument;
	struct ibv_async_event event;
	while (!ibv_get_async_event(context, &event))
		ibv_ack_async_event(&event);
	return NULL;
}

static const struct {
	void *(*run)(void *);
	bool ends_by_itself;
} kinds[] = {
	{ polls, true }, { polls_and_tests, false }, { posts, false },
	{ waits_for_completions, false }, { waits_for_events, false },
};

static int entries(const char *path)
{
	DIR *directory = opendir(path);
	CHECK(directory);
	int count = 0;
	while (readdir(directory))
		count++;
	closedir(directory);
	return count;
}

static void cancel_one(unsigned i)
{
	unsigned kind = i % (sizeof(kinds) / sizeof(kinds[0]));
	pthread_t thread;
	give_up = false;
	CHECK(!pthread_create(&thread, NULL, kinds[kind].run, NULL));
	/* Sometimes before it has begun, sometimes when it is at it. */
	struct timespec moment = { .tv_nsec = i * 7919 % 150000 };
	nanosleep(&moment, NULL);
	CHECK(!pthread_cancel(thread));
	if (kinds[kind].ends_by_itself) {
		nanosleep(&moment, NULL);
		give_up = true;
	}
	void *result;
	CHECK(!pthread_join(thread, &result));
	CHECK(kinds[kind].ends_by_itself || result == PTHREAD_CANCELED);
}

int main(int argc, char **argv)
{
	unsigned count = argc > 1 ? (unsigned)atoi(argv[1]) : 1000;
	alarm(60 + count / 50);
	struct ibv_device **list = ibv_get_device_list(NULL);
	CHECK(list && list[0]);
	context = ibv_open_device(list[0]);
	CHECK(context);
	ibv_free_device_list(list);
	pd = ibv_alloc_pd(context);
	mr = ibv_reg_mr(pd, memory, sizeof(memory), ALL);
	CHECK(pd && mr && !ibv_query_gid(context, 1, 0, &gid));
	open_line(&busy);
	open_line(&victims);
	pthread_t thread;
	CHECK(!pthread_create(&thread, NULL, traffic, NULL));
	ping(&victims);
	int descriptors = entries("/proc/self/fd"), threads = entries("/proc/self/task");
	for (unsigned i = 0; i < count; i++) {
		cancel_one(i);
		if (i % PING_EVERY == 0) {
			ping(&victims);
			ping_by_event(&victims);
		}
	}
	ping(&victims);
	ping_by_event(&victims);
	/* The device has descriptors that come and go with other processes, but not hundreds. */
	CHECK(entries("/proc/self/fd") < descriptors + MANY);
	/* The kernel removes a thread a moment after it was joined. */
	time_t limit = time(NULL) + PATIENCE_S;
	while (entries("/proc/self/task") != threads)
		CHECK(time(NULL) < limit);
	stop = true;
	CHECK(!pthread_join(thread, NULL));
	ping(&busy);
	/* Waits until every event that was told has been acknowledged. */
	close_line(&busy);
	close_line(&victims);
	CHECK(!ibv_dereg_mr(mr) && !ibv_dealloc_pd(pd) && !ibv_close_device(context));
	printf("%u cancelled, %lu writes meanwhile\n", count, (unsigned long)writes);
	return 0;
}
