/* Ways in which an RDMA program goes wrong, one per run: explained CASE. Prints what the program sees, which is little: a status, an errno.
 * The test reads what NONIC_LOG says of it on standard error. */
#define _GNU_SOURCE
#include <infiniband/verbs.h>
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "need.h"

enum { SIZE = 1 << 16, PATIENCE_S = 30 };
enum { ALL = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC };

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq, *far_cq;
static struct ibv_mr *mr;
static union ibv_gid gid;
static char *memory;

/* What a case changes in the two queue pairs before they are connected. */
static struct {
	enum ibv_qp_type type;
	int far_access, far_mtu, near_psn, near_fetches, far_fetches, near_gid_index, far_qpn_offset, far_deaf;
	struct ibv_srq *far_srq;
} plan = { .type = IBV_QPT_RC, .far_access = ALL, .far_mtu = IBV_MTU_1024, .near_fetches = 4, .far_fetches = 4 };

static struct ibv_qp *near, *far;

static struct ibv_qp *create(struct ibv_cq *queue, struct ibv_srq *srq)
{
	struct ibv_qp_init_attr init = {
		.send_cq = queue, .recv_cq = queue, .srq = srq, .qp_type = plan.type, .sq_sig_all = 1,
		.cap = { .max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 64 },
	};
	struct ibv_qp *made = ibv_create_qp(pd, &init);
	NEED(made);
	return made;
}

static int to_init(struct ibv_qp *qp, int access)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = access, .qkey = 0x11 };
	int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
	return ibv_modify_qp(qp, &attr, mask | (plan.type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS));
}

static int to_rtr(struct ibv_qp *qp, uint32_t peer, int mtu, int fetches, int gid_index, int left_out)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR, .path_mtu = mtu, .dest_qp_num = peer, .max_dest_rd_atomic = fetches, .min_rnr_timer = 1,
		.ah_attr = { .is_global = 1, .port_num = 1, .grh = { .dgid = gid, .sgid_index = gid_index } },
	};
	int connected = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	int mask = IBV_QP_STATE;
	if (plan.type != IBV_QPT_UD)
		mask |= connected;
	if (plan.type == IBV_QPT_RC)
		mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	return ibv_modify_qp(qp, &attr, mask & ~left_out);
}

static int to_rts(struct ibv_qp *qp, int psn, int fetches)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS, .sq_psn = psn, .timeout = 12, .retry_cnt = 2, .rnr_retry = 1, .max_rd_atomic = fetches,
	};
	int reliable = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
	return ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN | (plan.type == IBV_QPT_RC ? reliable : 0));
}

static void make(void)
{
	near = create(cq, NULL);
	far = create(far_cq, plan.far_srq);
	NEED(!to_init(near, ALL) && !to_init(far, plan.far_access));
}

static void connect(void)
{
	make();
	NEED(!to_rtr(near, far->qp_num + plan.far_qpn_offset, IBV_MTU_1024, 4, 0, 0));
	NEED(!to_rtr(far, near->qp_num, plan.far_mtu, plan.far_fetches, 0, 0));
	NEED(!to_rts(near, plan.near_psn, plan.near_fetches) && !to_rts(far, 0, 4));
}

static int post(enum ibv_wr_opcode opcode, uint64_t remote, uint32_t rkey, uint32_t length, int flags)
{
	struct ibv_sge sge = { (uintptr_t)memory, length, mr->lkey };
	struct ibv_send_wr wr = { .wr_id = 7, .sg_list = &sge, .num_sge = 1, .opcode = opcode, .send_flags = flags }, *bad;
	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = remote;
		wr.wr.atomic.rkey = rkey;
	} else {
		wr.wr.rdma.remote_addr = remote;
		wr.wr.rdma.rkey = rkey;
	}
	return ibv_post_send(near, &wr, &bad);
}

static void receive(uint32_t length, uint32_t lkey)
{
	struct ibv_sge sge = { (uintptr_t)memory + SIZE / 2, length, lkey };
	struct ibv_recv_wr wr = { .wr_id = 9, .sg_list = &sge, .num_sge = 1 }, *bad;
	NEED(!ibv_post_recv(far, &wr, &bad));
}

/* Polls both sides until the near one has a completion, and tells its status. */
static void told(void)
{
	struct timespec start, now;
	struct ibv_wc wc;
	clock_gettime(CLOCK_MONOTONIC, &start);
	do {
		int count = ibv_poll_cq(cq, 1, &wc);
		if (count > 0) {
			printf("%s\n", ibv_wc_status_str(wc.status));
			return;
		}
		if (count < 0) {
			printf("no more completions\n");
			return;
		}
		if (!plan.far_deaf)
			ibv_poll_cq(far_cq, 1, &wc);
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while (now.tv_sec - start.tv_sec < PATIENCE_S);
	printf("nothing\n");
	exit(1);
}

static void code(int error)
{
	printf("%s\n", strerrorname_np(error));
}

static uint64_t there(void)
{
	return (uintptr_t)memory;
}

static void write_with(uint64_t remote, uint32_t rkey, uint32_t length)
{
	connect();
	NEED(!post(IBV_WR_RDMA_WRITE, remote, rkey, length, 0));
	told();
}

static void wrong_key(void) { write_with(there(), mr->rkey ^ 0x55, 64); }

static void revoked_key(void)
{
	struct ibv_mr *other = ibv_reg_mr(pd, memory, SIZE, ALL);
	uint32_t rkey = other->rkey;
	NEED(!ibv_dereg_mr(other));
	write_with(there(), rkey, 64);
}

static void out_of_bounds(void) { write_with(there() + SIZE - 10, mr->rkey, 64); }

static void no_remote_right(void)
{
	struct ibv_mr *other = ibv_reg_mr(pd, memory, SIZE, IBV_ACCESS_REMOTE_READ);
	NEED(other);
	write_with(there(), other->rkey, 64);
}

static void other_protection_domain(void)
{
	struct ibv_pd *foreign = ibv_alloc_pd(context);
	struct ibv_mr *other = ibv_reg_mr(foreign, memory, SIZE, ALL);
	NEED(other);
	write_with(there(), other->rkey, 64);
}

static void queue_pair_forbids(void)
{
	plan.far_access = IBV_ACCESS_REMOTE_READ;
	write_with(there(), mr->rkey, 64);
}

static void unaligned_atomic(void)
{
	connect();
	NEED(!post(IBV_WR_ATOMIC_FETCH_AND_ADD, there() + 4, mr->rkey, 8, 0));
	told();
}

static void memory_unmapped(void)
{
	char *gone = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct ibv_mr *other = ibv_reg_mr(pd, gone, 8192, ALL);
	NEED(other && !munmap(gone, 8192));
	write_with((uintptr_t)gone, other->rkey, 64);
}

static void send_to_receive(uint32_t length, uint32_t room, uint32_t lkey)
{
	connect();
	receive(room, lkey);
	NEED(!post(IBV_WR_SEND, 0, 0, length, 0));
	told();
}

static void receive_too_short(void) { send_to_receive(300, 100, mr->lkey); }

static void receive_not_writable(void)
{
	struct ibv_mr *other = ibv_reg_mr(pd, memory, SIZE, IBV_ACCESS_REMOTE_READ);
	NEED(other);
	send_to_receive(64, 64, other->lkey);
}

static void no_receive(void)
{
	connect();
	NEED(!post(IBV_WR_SEND, 0, 0, 64, 0));
	told();
}

static void shared_queue_empty(void)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 4, .max_sge = 1 } };
	plan.far_srq = ibv_create_srq(pd, &init);
	NEED(plan.far_srq);
	no_receive();
}

static void local_out_of_bounds(void)
{
	connect();
	NEED(!post(IBV_WR_RDMA_WRITE, there(), mr->rkey, SIZE + 10, 0));
	told();
}

static void local_key_revoked(void)
{
	struct ibv_mr *keep = mr;
	mr = ibv_reg_mr(pd, memory, SIZE, ALL);
	struct ibv_mr copy = *mr;
	NEED(!ibv_dereg_mr(mr));
	mr = &copy;
	write_with(there(), keep->rkey, 64);
}

static void invalidate_region(void)
{
	connect();
	struct ibv_send_wr wr = { .wr_id = 7, .opcode = IBV_WR_LOCAL_INV, .invalidate_rkey = mr->rkey }, *bad;
	NEED(!ibv_post_send(near, &wr, &bad));
	told();
}

static void window_without_right(void)
{
	connect();
	struct ibv_mw *window = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
	NEED(window);
	struct ibv_send_wr wr = {
		.wr_id = 7, .opcode = IBV_WR_BIND_MW,
		.bind_mw = { window, ibv_inc_rkey(window->rkey), { mr, there(), 64, IBV_ACCESS_REMOTE_READ } },
	}, *bad;
	NEED(!ibv_post_send(near, &wr, &bad));
	told();
}

static int send_datagram(struct ibv_ah *ah, struct ibv_qp *to, uint32_t qkey)
{
	struct ibv_sge sge = { there(), 64, mr->lkey };
	struct ibv_send_wr wr = { .wr_id = 7, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND }, *bad;
	wr.wr.ud.ah = ah;
	wr.wr.ud.remote_qpn = to->qp_num;
	wr.wr.ud.remote_qkey = qkey;
	return ibv_post_send(near, &wr, &bad);
}

/* A datagram that is dropped, and then one to another queue pair, which comes behind it: when that is there, the first has been looked at. */
static void datagram(uint32_t qkey, bool posted)
{
	plan.type = IBV_QPT_UD;
	connect();
	if (posted)
		receive(1000, mr->lkey);
	struct ibv_ah_attr attr = { .is_global = 1, .port_num = 1, .grh = { .dgid = gid } };
	struct ibv_ah *ah = ibv_create_ah(pd, &attr);
	NEED(ah && !send_datagram(ah, far, qkey));
	told();
	struct ibv_qp *deaf = far;
	far = create(far_cq, NULL);
	NEED(!to_init(far, ALL) && !to_rtr(far, 0, IBV_MTU_1024, 0, 0, 0) && deaf != far);
	receive(1000, mr->lkey);
	struct ibv_wc wc;
	int seen = 0;
	for (int round = 0; round < PATIENCE_S * 1000 && !seen; round++) {
		if (round % 100 == 0)
			NEED(!send_datagram(ah, far, 0x11));
		struct timespec pause = { .tv_nsec = 1000000 };
		nanosleep(&pause, NULL);
		while (ibv_poll_cq(cq, 1, &wc) > 0)
			;
		seen = ibv_poll_cq(far_cq, 1, &wc);
	}
	NEED(seen == 1 && wc.qp_num == far->qp_num);
}

static void wrong_q_key(void) { datagram(0x22, true); }

static void datagram_without_receive(void) { datagram(0x11, false); }

static void never_answers(void)
{
	plan.far_qpn_offset = 1;
	write_with(there(), mr->rkey, 64);
}

static void peer_gone(void)
{
	write_with(there(), mr->rkey, 64);
	NEED(!ibv_destroy_qp(far));
	NEED(!post(IBV_WR_RDMA_WRITE, there(), mr->rkey, 64, 0));
	told();
}

static void everything_lost(void) { write_with(there(), mr->rkey, 64); }

static void different_path_mtu(void)
{
	plan.far_mtu = IBV_MTU_512;
	send_to_receive(4096, 8192, mr->lkey);
}

static void different_first_psn(void)
{
	plan.near_psn = 1000;
	write_with(there(), mr->rkey, 64);
}

static void too_many_reads(void)
{
	plan.far_fetches = 0;
	connect();
	NEED(!post(IBV_WR_RDMA_READ, there(), mr->rkey, 64, 0));
	told();
}

static void completion_queue_overrun(void)
{
	cq = ibv_create_cq(context, 1, NULL, NULL, 0);
	NEED(cq);
	connect();
	for (int i = 0; i < 16; i++)
		NEED(!post(IBV_WR_RDMA_WRITE, there(), mr->rkey, 64, 0));
	struct timespec pause = { .tv_nsec = 200000000 };
	nanosleep(&pause, NULL);
	struct ibv_async_event event;
	NEED(!ibv_get_async_event(context, &event));
	printf("%s\n", ibv_event_type_str(event.event_type));
}

static void wrong_state(void)
{
	make();
	NEED(!to_rtr(near, far->qp_num, IBV_MTU_1024, 4, 0, 0));
	code(post(IBV_WR_SEND, 0, 0, 64, 0));
}

static void inline_too_long(void)
{
	connect();
	code(post(IBV_WR_SEND, 0, 0, 1000, IBV_SEND_INLINE));
}

static void operation_not_offered(void)
{
	plan.type = IBV_QPT_UC;
	connect();
	code(post(IBV_WR_RDMA_READ, there(), mr->rkey, 64, 0));
}

static void wrong_gid_index(void)
{
	make();
	code(to_rtr(near, far->qp_num, IBV_MTU_1024, 4, 99, 0));
}

static void attribute_missing(void)
{
	make();
	code(to_rtr(near, far->qp_num, IBV_MTU_1024, 4, 0, IBV_QP_RQ_PSN));
}

static void no_such_transition(void)
{
	make();
	code(to_rts(near, 0, 4));
}

static void write_right_alone(void)
{
	errno = 0;
	NEED(!ibv_reg_mr(pd, memory, SIZE, IBV_ACCESS_REMOTE_WRITE));
	code(errno);
}

static void queue_too_deep(void)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .cap = { .max_send_wr = 1 << 30 },
	};
	errno = 0;
	NEED(!ibv_create_qp(pd, &init));
	code(errno);
}

#define CASE(name) { #name, name }
static const struct {
	const char *name;
	void (*run)(void);
} cases[] = {
	CASE(wrong_key), CASE(revoked_key), CASE(out_of_bounds), CASE(no_remote_right), CASE(other_protection_domain),
	CASE(queue_pair_forbids), CASE(unaligned_atomic), CASE(memory_unmapped), CASE(receive_too_short),
	CASE(receive_not_writable), CASE(no_receive), CASE(shared_queue_empty), CASE(local_out_of_bounds),
	CASE(local_key_revoked), CASE(invalidate_region), CASE(window_without_right), CASE(wrong_q_key),
	CASE(datagram_without_receive), CASE(never_answers), CASE(peer_gone), CASE(everything_lost),
	CASE(different_path_mtu), CASE(different_first_psn), CASE(too_many_reads), CASE(completion_queue_overrun),
	CASE(wrong_state), CASE(inline_too_long), CASE(operation_not_offered), CASE(wrong_gid_index),
	CASE(attribute_missing), CASE(no_such_transition), CASE(write_right_alone), CASE(queue_too_deep),
};

static void open_device(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	NEED(list && list[0]);
	context = ibv_open_device(list[0]);
	NEED(context);
	ibv_free_device_list(list);
	pd = ibv_alloc_pd(context);
	cq = ibv_create_cq(context, 64, NULL, NULL, 0);
	far_cq = ibv_create_cq(context, 64, NULL, NULL, 0);
	memory = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	NEED(pd && cq && far_cq && memory != MAP_FAILED && !ibv_query_gid(context, 1, 0, &gid));
	mr = ibv_reg_mr(pd, memory, SIZE, ALL);
	NEED(mr);
}

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc < 2) {
		for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
			printf("%s\n", cases[i].name);
		return 0;
	}
	open_device();
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		if (!strcmp(argv[1], cases[i].name)) {
			cases[i].run();
			return 0;
		}
	}
	printf("there is no case %s\n", argv[1]);
	return 1;
}
