/* Many threads, one device: each sends through its own queue pairs, half of them receive through one completion
 * queue and one shared receive queue, and one more thread creates and destroys objects all the while. Every byte
 * is verified, and every message must arrive exactly once.
 *
 * Usage: threads SECONDS. Prints how many messages arrived. */
#include <infiniband/verbs.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ALONE = 4, SHARING = 4, BATCH = 16, SIZE = 3000, SLOTS = 256, ROUND_LIMIT_S = 30 };

#define CHECK(condition) \
	do { \
		if (!(condition)) { \
			fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #condition, strerror(errno)); \
			exit(1); \
		} \
	} while (0)

static struct ibv_context *context;
static struct ibv_pd *pd;
static union ibv_gid gid;
static atomic_bool stop;
static atomic_ulong messages;

/* What the sharing threads have in common. */
static struct ibv_cq *shared_cq;
static struct ibv_srq *shared_srq;
static struct ibv_mr *shared_mr;
static unsigned char shared_buffer[SLOTS][SIZE];
static atomic_uint seen[SHARING];
static uint32_t rounds[SHARING];

struct message {
	uint32_t sender, round, index;
	unsigned char pattern[SIZE - 12];
};

static unsigned char pattern(uint32_t sender, uint32_t round, uint32_t index, uint32_t at)
{
	return (unsigned char)(sender * 31 + round * 7 + index * 13 + at);
}

static void fill(struct message *message, uint32_t sender, uint32_t round, uint32_t index)
{
	message->sender = sender;
	message->round = round;
	message->index = index;
	for (uint32_t at = 0; at < sizeof(message->pattern); at++)
		message->pattern[at] = pattern(sender, round, index, at);
}

static void verify(const struct message *message, uint32_t sender, uint32_t round, uint32_t index)
{
	CHECK(message->sender == sender && message->round == round && message->index == index);
	for (uint32_t at = 0; at < sizeof(message->pattern); at++)
		CHECK(message->pattern[at] == pattern(sender, round, index, at));
}

static struct ibv_qp *create(struct ibv_cq *send_cq, struct ibv_cq *recv_cq, struct ibv_srq *srq)
{
	struct ibv_qp_init_attr init = {
		.send_cq = send_cq, .recv_cq = recv_cq, .srq = srq, .qp_type = IBV_QPT_RC, .sq_sig_all = 1,
		.cap = { .max_send_wr = 2 * BATCH, .max_recv_wr = 2 * BATCH, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	CHECK(qp);
	return qp;
}

static void point(struct ibv_qp *qp, uint32_t peer)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT, .port_num = 1,
		.qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
		.path_mtu = IBV_MTU_1024, .dest_qp_num = peer, .max_dest_rd_atomic = 8, .max_rd_atomic = 8,
		.min_rnr_timer = 1, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7,
		.ah_attr = { .is_global = 1, .port_num = 1, .grh = { .dgid = gid, .hop_limit = 64 } },
	};
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	attr.qp_state = IBV_QPS_RTR;
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	attr.qp_state = IBV_QPS_RTS;
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
}

static void send_one(struct ibv_qp *qp, enum ibv_wr_opcode opcode, struct message *from, struct ibv_mr *mr,
		     uint64_t remote, uint32_t rkey, uint64_t wr_id)
{
	struct ibv_sge sge = { .addr = (uintptr_t)from, .length = SIZE, .lkey = mr->lkey };
	struct ibv_send_wr wr = { .wr_id = wr_id, .sg_list = &sge, .num_sge = 1, .opcode = opcode }, *bad;
	wr.wr.rdma.remote_addr = remote;
	wr.wr.rdma.rkey = rkey;
	CHECK(!ibv_post_send(qp, &wr, &bad));
}

static time_t now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec;
}

/* Takes exactly `expected` completions; each wr_id below it comes once. */
static void drain(struct ibv_cq *cq, unsigned expected)
{
	time_t limit = now() + ROUND_LIMIT_S;
	unsigned long came = 0;
	for (unsigned got = 0; got < expected;) {
		struct ibv_wc wc[8];
		int n = ibv_poll_cq(cq, 8, wc);
		CHECK(n >= 0);
		for (int i = 0; i < n; i++, got++) {
			CHECK(wc[i].status == IBV_WC_SUCCESS);
			CHECK(wc[i].wr_id < expected && !(came & 1ul << wc[i].wr_id));
			came |= 1ul << wc[i].wr_id;
		}
		CHECK(now() < limit);
	}
}

/* Sends, writes and reads between two queue pairs of its own. */
static void *alone(void *argument)
{
	uint32_t me = (uint32_t)(uintptr_t)argument;
	struct message *memory = calloc(2 * BATCH, sizeof(*memory));
	struct ibv_mr *mr = ibv_reg_mr(pd, memory, 2 * BATCH * sizeof(*memory),
				       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
	struct ibv_cq *cq = ibv_create_cq(context, 4 * BATCH, NULL, NULL, 0);
	CHECK(memory && mr && cq);
	struct ibv_qp *a = create(cq, cq, NULL), *b = create(cq, cq, NULL);
	point(a, b->qp_num);
	point(b, a->qp_num);
	struct message *near = memory, *far = memory + BATCH;
	for (uint32_t round = 0; !stop; round++) {
		static const enum ibv_wr_opcode kinds[] = { IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ };
		enum ibv_wr_opcode kind = kinds[round % 3];
		bool reading = kind == IBV_WR_RDMA_READ, sending = kind == IBV_WR_SEND;
		for (uint32_t i = 0; i < BATCH; i++) {
			fill(reading ? &far[i] : &near[i], me, round, i);
			if (sending) {
				struct ibv_sge sge = { .addr = (uintptr_t)&far[i], .length = SIZE, .lkey = mr->lkey };
				struct ibv_recv_wr wr = { .wr_id = BATCH + i, .sg_list = &sge, .num_sge = 1 }, *bad;
				CHECK(!ibv_post_recv(b, &wr, &bad));
			}
		}
		for (uint32_t i = 0; i < BATCH; i++)
			send_one(a, kind, &near[i], mr, (uintptr_t)&far[i], mr->rkey, i);
		drain(cq, sending ? 2 * BATCH : BATCH);
		for (uint32_t i = 0; i < BATCH; i++)
			verify(reading ? &near[i] : &far[i], me, round, i);
		messages += BATCH;
	}
	CHECK(!ibv_destroy_qp(a) && !ibv_destroy_qp(b) && !ibv_destroy_cq(cq) && !ibv_dereg_mr(mr));
	free(memory);
	return NULL;
}

static void offer(uint64_t slot)
{
	struct ibv_sge sge = { .addr = (uintptr_t)shared_buffer[slot], .length = SIZE, .lkey = shared_mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = slot, .sg_list = &sge, .num_sge = 1 }, *bad;
	CHECK(!ibv_post_srq_recv(shared_srq, &wr, &bad));
}

/* Takes what there is for anybody. */
static void serve(void)
{
	struct ibv_wc wc[4];
	int n = ibv_poll_cq(shared_cq, 4, wc);
	CHECK(n >= 0);
	for (int i = 0; i < n; i++) {
		CHECK(wc[i].status == IBV_WC_SUCCESS && wc[i].byte_len == SIZE);
		struct message *message = (void *)shared_buffer[wc[i].wr_id];
		uint32_t sender = message->sender, index = message->index;
		CHECK(sender < SHARING && index < BATCH);
		verify(message, sender, rounds[sender], index);
		offer(wc[i].wr_id);
		CHECK(!(atomic_fetch_or(&seen[sender], 1u << index) & 1u << index));
	}
}

/* Sends to a queue pair that receives where the others do too. */
static void *sharing(void *argument)
{
	uint32_t me = (uint32_t)(uintptr_t)argument;
	struct message *memory = calloc(BATCH, sizeof(*memory));
	struct ibv_mr *mr = ibv_reg_mr(pd, memory, BATCH * sizeof(*memory), IBV_ACCESS_LOCAL_WRITE);
	struct ibv_cq *cq = ibv_create_cq(context, 2 * BATCH, NULL, NULL, 0);
	CHECK(memory && mr && cq);
	struct ibv_qp *a = create(cq, cq, NULL), *b = create(cq, shared_cq, shared_srq);
	point(a, b->qp_num);
	point(b, a->qp_num);
	while (!stop) {
		for (uint32_t i = 0; i < BATCH; i++) {
			fill(&memory[i], me, rounds[me], i);
			send_one(a, IBV_WR_SEND, &memory[i], mr, 0, 0, i);
		}
		time_t limit = now() + ROUND_LIMIT_S;
		while (seen[me] != (1u << BATCH) - 1) {
			serve();
			CHECK(now() < limit);
		}
		drain(cq, BATCH);
		rounds[me]++;
		seen[me] = 0;
		messages += BATCH;
	}
	CHECK(!ibv_destroy_qp(a) && !ibv_destroy_qp(b) && !ibv_destroy_cq(cq) && !ibv_dereg_mr(mr));
	free(memory);
	return NULL;
}

/* Comes and goes while the others work. */
static void *churning(void *argument)
{
	(void)argument;
	static unsigned char memory[1 << 16];
	while (!stop) {
		struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, NULL, 0);
		struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE);
		CHECK(cq && mr);
		struct ibv_qp *a = create(cq, cq, NULL), *b = create(cq, cq, shared_srq);
		point(a, b->qp_num);
		CHECK(!ibv_destroy_qp(a) && !ibv_destroy_qp(b) && !ibv_destroy_cq(cq) && !ibv_dereg_mr(mr));
		struct timespec pause = { .tv_nsec = 1000000 };
		nanosleep(&pause, NULL);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	int seconds = argc > 1 ? atoi(argv[1]) : 60;
	struct ibv_device **list = ibv_get_device_list(NULL);
	CHECK(list && list[0]);
	context = ibv_open_device(list[0]);
	CHECK(context);
	ibv_free_device_list(list);
	pd = ibv_alloc_pd(context);
	CHECK(pd && !ibv_query_gid(context, 1, 0, &gid));
	shared_cq = ibv_create_cq(context, 2 * SLOTS, NULL, NULL, 0);
	struct ibv_srq_init_attr init = { .attr = { .max_wr = SLOTS, .max_sge = 1 } };
	shared_srq = ibv_create_srq(pd, &init);
	shared_mr = ibv_reg_mr(pd, shared_buffer, sizeof(shared_buffer), IBV_ACCESS_LOCAL_WRITE);
	CHECK(shared_cq && shared_srq && shared_mr);
	for (uint64_t slot = 0; slot < SLOTS; slot++)
		offer(slot);

	pthread_t threads[ALONE + SHARING + 1];
	int count = 0;
	for (uintptr_t i = 0; i < ALONE; i++)
		CHECK(!pthread_create(&threads[count++], NULL, alone, (void *)i));
	for (uintptr_t i = 0; i < SHARING; i++)
		CHECK(!pthread_create(&threads[count++], NULL, sharing, (void *)i));
	CHECK(!pthread_create(&threads[count++], NULL, churning, NULL));
	struct timespec duration = { .tv_sec = seconds };
	nanosleep(&duration, NULL);
	stop = true;
	while (count > 0)
		CHECK(!pthread_join(threads[--count], NULL));

	CHECK(!ibv_destroy_srq(shared_srq) && !ibv_destroy_cq(shared_cq) && !ibv_dereg_mr(shared_mr));
	CHECK(!ibv_dealloc_pd(pd) && !ibv_close_device(context));
	printf("%lu messages\n", (unsigned long)messages);
	return 0;
}
