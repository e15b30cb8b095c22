/* What a program gets for its mistakes: every verb's documented errors, one line each. Prints the lines that did
 * not hold, and how many there were. */
#include <infiniband/verbs.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "need.h"

static int checks, failures;

static void outcome(int line, const char *call, int got, int expected)
{
	checks++;
	if (got == expected)
		return;
	failures++;
	printf("line %d: %s: got %d (%s), expected %d (%s)\n", line, call, got, strerror(got), expected,
	       strerror(expected));
}

/* A verb that answers an errno. */
#define CODE(call, expected) outcome(__LINE__, #call, (call), (expected))
/* A verb that answers -1 and sets errno. */
#define MINUS(call, expected) outcome(__LINE__, #call, (errno = 0, (call) == -1 ? errno : 0), (expected))
/* A verb that answers NULL and sets errno. */
#define NOTHING(call, expected) outcome(__LINE__, #call, (errno = 0, (call) == NULL ? errno : 0), (expected))
/* A completion's status. */
#define STATUS(cq, expected) outcome(__LINE__, #cq, next_status(cq), (expected))

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_mr *mr;
static union ibv_gid gid;
static char memory[8192] __attribute__((aligned(4096)));

static int next_status(struct ibv_cq *queue)
{
	struct timespec start, now;
	clock_gettime(CLOCK_MONOTONIC, &start);
	do {
		struct ibv_wc wc;
		int n = ibv_poll_cq(queue, 1, &wc);
		if (n)
			return n < 0 ? n : (int)wc.status;
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while (now.tv_sec - start.tv_sec < 20);
	return -1;
}

static void devices(void)
{
	struct ibv_device_attr attr;
	struct ibv_port_attr port;
	union ibv_gid answer;
	struct ibv_gid_entry entry;
	__be16 pkey;
	NOTHING(ibv_open_device(NULL), EINVAL);
	CODE(ibv_query_device(context, NULL), EINVAL);
	CODE(ibv_query_device(context, &attr), 0);
	CODE(ibv_query_port(context, 0, &port), EINVAL);
	CODE(ibv_query_port(context, 2, &port), EINVAL);
	MINUS(ibv_query_gid(context, 1, -1, &answer), EINVAL);
	MINUS(ibv_query_gid(context, 1, 100000, &answer), EINVAL);
	MINUS(ibv_query_gid(context, 2, 0, &answer), EINVAL);
	CODE(ibv_query_gid_ex(context, 1, 31, &entry, 0), ENODATA);
	CODE(ibv_query_gid_ex(context, 1, 0, &entry, 1), EINVAL);
	MINUS(ibv_query_pkey(context, 1, 1, &pkey), EINVAL);
	MINUS(ibv_get_pkey_index(context, 1, 0), EINVAL);
}

static void registrations(void)
{
	char *gone = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *fixed = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	NEED(gone != MAP_FAILED && fixed != MAP_FAILED && !munmap(gone + 4096, 4096));
	NOTHING(ibv_reg_mr(pd, gone, 8192, IBV_ACCESS_LOCAL_WRITE), EFAULT);
	NOTHING(ibv_reg_mr(pd, NULL, 4096, IBV_ACCESS_LOCAL_WRITE), EFAULT);
	NOTHING(ibv_reg_mr(pd, fixed, 4096, IBV_ACCESS_LOCAL_WRITE), EFAULT);
	NOTHING(ibv_reg_mr(pd, memory, 4096, IBV_ACCESS_REMOTE_WRITE), EINVAL);
	NOTHING(ibv_reg_mr(pd, memory, 4096, IBV_ACCESS_REMOTE_ATOMIC), EINVAL);
	NOTHING(ibv_reg_mr(pd, memory, 4096, 1 << 15), EINVAL);
	NOTHING(ibv_reg_mr(NULL, memory, 4096, 0), EINVAL);
	NOTHING(ibv_reg_mr(pd, memory, SIZE_MAX, IBV_ACCESS_LOCAL_WRITE), EINVAL);
	struct ibv_mr *read_only = ibv_reg_mr(pd, fixed, 4096, IBV_ACCESS_REMOTE_READ);
	NEED(read_only);
	CODE(ibv_rereg_mr(read_only, 0, NULL, NULL, 0, 0), IBV_REREG_MR_ERR_INPUT);
	CODE(ibv_rereg_mr(read_only, 1 << 5, NULL, NULL, 0, 0), IBV_REREG_MR_ERR_INPUT);
	CODE(ibv_rereg_mr(read_only, IBV_REREG_MR_CHANGE_PD, NULL, NULL, 0, 0), IBV_REREG_MR_ERR_INPUT);
	CODE(ibv_dereg_mr(read_only), 0);
	CODE(ibv_dereg_mr(NULL), EINVAL);
	CODE(ibv_dealloc_pd(pd), EBUSY);
	NOTHING(ibv_alloc_mw(pd, 3), EINVAL);
}

static void queues(void)
{
	struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
	NEED(channel);
	NOTHING(ibv_create_cq(context, 0, NULL, NULL, 0), EINVAL);
	NOTHING(ibv_create_cq(context, -5, NULL, NULL, 0), EINVAL);
	NOTHING(ibv_create_cq(context, INT32_MAX, NULL, NULL, 0), EINVAL);
	NOTHING(ibv_create_cq(context, 16, NULL, NULL, -1), EINVAL);
	NOTHING(ibv_create_cq(context, 16, NULL, NULL, context->num_comp_vectors), EINVAL);
	struct ibv_cq *heard = ibv_create_cq(context, 16, NULL, channel, 0);
	NEED(heard);
	CODE(ibv_destroy_comp_channel(channel), EBUSY);
	CODE(ibv_resize_cq(heard, 0), EINVAL);
	CODE(ibv_resize_cq(heard, INT32_MAX), EINVAL);
	CODE(ibv_destroy_cq(heard), 0);
	CODE(ibv_destroy_comp_channel(channel), 0);
	struct ibv_cq_init_attr_ex init = { .cqe = 16, .wc_flags = IBV_WC_EX_WITH_FLOW_TAG };
	NOTHING(ibv_create_cq_ex(context, &init), EOPNOTSUPP);
	init = (struct ibv_cq_init_attr_ex){ .cqe = 16, .comp_mask = 1u << 31 };
	NOTHING(ibv_create_cq_ex(context, &init), EINVAL);

	struct ibv_srq_init_attr srq_init = { .attr = { .max_wr = 1 << 30, .max_sge = 1 } };
	NOTHING(ibv_create_srq(pd, &srq_init), EINVAL);
	srq_init.attr = (struct ibv_srq_attr){ .max_wr = 2, .max_sge = 1000 };
	NOTHING(ibv_create_srq(pd, &srq_init), EINVAL);
	srq_init.attr = (struct ibv_srq_attr){ .max_wr = 2, .max_sge = 1 };
	struct ibv_srq *srq = ibv_create_srq(pd, &srq_init);
	NEED(srq);
	struct ibv_srq_attr attr = { .srq_limit = 3 };
	CODE(ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT), EINVAL);
	CODE(ibv_modify_srq(srq, &attr, 1 << 7), EINVAL);
	struct ibv_sge sge[2] = { { (uintptr_t)memory, 10, mr->lkey }, { (uintptr_t)memory, 10, mr->lkey } };
	struct ibv_recv_wr wr[3] = { { 0, &wr[1], sge, 1 }, { 1, &wr[2], sge, 1 }, { 2, NULL, sge, 1 } }, *bad = NULL;
	CODE(ibv_post_srq_recv(srq, wr, &bad), ENOMEM);
	CODE(bad == &wr[2] ? 0 : 1, 0);
	wr[0] = (struct ibv_recv_wr){ 0, NULL, sge, 2 };
	CODE(ibv_post_srq_recv(srq, wr, &bad), EINVAL);
	CODE(ibv_destroy_srq(srq), 0);
}

static struct ibv_qp *create(enum ibv_qp_type type)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq, .recv_cq = cq, .qp_type = type, .sq_sig_all = 1,
		.cap = { .max_send_wr = 2, .max_recv_wr = 2, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 16 },
	};
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	NEED(qp);
	return qp;
}

static int move(struct ibv_qp *qp, enum ibv_qp_state state, uint32_t peer, uint8_t gid_index)
{
	struct ibv_qp_attr attr = {
		.qp_state = state, .port_num = 1, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer,
		.qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE,
		.max_dest_rd_atomic = 1, .max_rd_atomic = 1, .min_rnr_timer = 1, .timeout = 10, .retry_cnt = 1, .rnr_retry = 1,
		.ah_attr = { .is_global = 1, .port_num = 1, .grh = { .dgid = gid, .sgid_index = gid_index } },
	};
	int mask = IBV_QP_STATE;
	if (state == IBV_QPS_INIT)
		mask |= IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
	if (state == IBV_QPS_RTR)
		mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
			IBV_QP_MIN_RNR_TIMER;
	if (state == IBV_QPS_RTS)
		mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;
	return ibv_modify_qp(qp, &attr, mask);
}

static void connect(struct ibv_qp *qp, struct ibv_qp *peer)
{
	NEED(!move(qp, IBV_QPS_INIT, 0, 0) && !move(qp, IBV_QPS_RTR, peer->qp_num, 0) && !move(qp, IBV_QPS_RTS, 0, 0));
}

static void creations(void)
{
	struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC };
	init.cap.max_send_wr = 1 << 30;
	NOTHING(ibv_create_qp(pd, &init), EINVAL);
	init.cap = (struct ibv_qp_cap){ .max_send_sge = 1000 };
	NOTHING(ibv_create_qp(pd, &init), EINVAL);
	init.cap = (struct ibv_qp_cap){ .max_inline_data = 1 << 20 };
	NOTHING(ibv_create_qp(pd, &init), EINVAL);
	init = (struct ibv_qp_init_attr){ .recv_cq = cq, .qp_type = IBV_QPT_RC };
	NOTHING(ibv_create_qp(pd, &init), EINVAL);
	init = (struct ibv_qp_init_attr){ .send_cq = cq, .recv_cq = cq, .qp_type = (enum ibv_qp_type)77 };
	NOTHING(ibv_create_qp(pd, &init), EINVAL);
	init.qp_type = IBV_QPT_RAW_PACKET;
	NOTHING(ibv_create_qp(pd, &init), EOPNOTSUPP);
	NOTHING(ibv_create_qp(NULL, &init), EINVAL);
	NOTHING(ibv_create_qp(pd, NULL), EINVAL);
	struct ibv_ah_attr route = { .is_global = 0, .port_num = 1, .grh = { .dgid = gid } };
	NOTHING(ibv_create_ah(pd, &route), EINVAL);
	route = (struct ibv_ah_attr){ .is_global = 1, .port_num = 2, .grh = { .dgid = gid } };
	NOTHING(ibv_create_ah(pd, &route), EINVAL);
	route = (struct ibv_ah_attr){ .is_global = 1, .port_num = 1, .grh = { .dgid = gid, .sgid_index = 200 } };
	NOTHING(ibv_create_ah(pd, &route), EINVAL);
}

static void transitions(void)
{
	struct ibv_qp *qp = create(IBV_QPT_RC);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT };
	CODE(move(qp, IBV_QPS_RTS, 0, 0), EINVAL);
	CODE(move(qp, IBV_QPS_RTR, 1, 0), EINVAL);
	CODE(ibv_modify_qp(qp, &attr, IBV_QP_STATE), EINVAL);
	CODE(ibv_modify_qp(qp, &attr, 1 << 30), EINVAL);
	CODE(ibv_modify_qp(qp, NULL, IBV_QP_STATE), EINVAL);
	attr.qp_state = (enum ibv_qp_state)40;
	CODE(ibv_modify_qp(qp, &attr, IBV_QP_STATE), EINVAL);
	CODE(move(qp, IBV_QPS_INIT, 0, 0), 0);
	CODE(move(qp, IBV_QPS_RTR, 1, 99), EINVAL);
	CODE(move(qp, IBV_QPS_RTR, 1, 0), 0);
	CODE(move(qp, IBV_QPS_RTR, 1, 0), EINVAL);
	CODE(move(qp, IBV_QPS_RTS, 0, 0), 0);
	attr.cur_qp_state = IBV_QPS_INIT;
	CODE(ibv_modify_qp(qp, &attr, IBV_QP_CUR_STATE), EINVAL);
	attr.timeout = 77;
	CODE(ibv_modify_qp(qp, &attr, IBV_QP_TIMEOUT), EINVAL);
	CODE(move(qp, IBV_QPS_RESET, 0, 0), 0);
	CODE(ibv_destroy_qp(qp), 0);
	CODE(ibv_destroy_qp(NULL), EINVAL);
}

static void postings(void)
{
	struct ibv_qp *qp = create(IBV_QPT_RC), *peer = create(IBV_QPT_RC);
	struct ibv_sge sge[2] = { { (uintptr_t)memory, 64, mr->lkey }, { (uintptr_t)memory, 64, mr->lkey } };
	struct ibv_send_wr wr = { .sg_list = sge, .num_sge = 1, .opcode = IBV_WR_SEND }, *bad = NULL;
	struct ibv_recv_wr recv = { .sg_list = sge, .num_sge = 1 }, *bad_recv = NULL;
	CODE(ibv_post_send(qp, &wr, &bad), EINVAL);
	CODE(bad == &wr ? 0 : 1, 0);
	CODE(ibv_post_recv(qp, &recv, &bad_recv), EINVAL);
	connect(qp, peer);
	connect(peer, qp);
	wr.num_sge = 2;
	CODE(ibv_post_send(qp, &wr, &bad), EINVAL);
	wr.num_sge = -1;
	CODE(ibv_post_send(qp, &wr, &bad), EINVAL);
	wr = (struct ibv_send_wr){ .sg_list = NULL, .num_sge = 1, .opcode = IBV_WR_SEND };
	CODE(ibv_post_send(qp, &wr, &bad), EINVAL);
	wr = (struct ibv_send_wr){ .sg_list = sge, .num_sge = 1, .opcode = (enum ibv_wr_opcode)99 };
	CODE(ibv_post_send(qp, &wr, &bad), EINVAL);
	wr = (struct ibv_send_wr){ .sg_list = sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_INLINE };
	CODE(ibv_post_send(qp, &wr, &bad), EINVAL);
	wr = (struct ibv_send_wr){ .sg_list = sge, .num_sge = 1, .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD };
	CODE(ibv_post_send(qp, &wr, &bad), EINVAL);
	recv.num_sge = 2;
	CODE(ibv_post_recv(qp, &recv, &bad_recv), EINVAL);
	recv.num_sge = 1;
	CODE(ibv_post_recv(qp, &recv, &bad_recv), 0);
	CODE(ibv_post_recv(qp, &recv, &bad_recv), 0);
	CODE(ibv_post_recv(qp, &recv, &bad_recv), ENOMEM);
	CODE(ibv_post_recv(qp, NULL, &bad_recv), 0);
	CODE(ibv_post_send(qp, NULL, &bad), 0);
	CODE(ibv_destroy_cq(cq), EBUSY);
	CODE(ibv_attach_mcast(qp, &gid, 0), EINVAL);
	CODE(ibv_destroy_qp(qp), 0);
	CODE(ibv_destroy_qp(peer), 0);

	struct ibv_qp *datagram = create(IBV_QPT_UD);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 5 };
	NEED(!ibv_modify_qp(datagram, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY));
	attr.qp_state = IBV_QPS_RTR;
	NEED(!ibv_modify_qp(datagram, &attr, IBV_QP_STATE));
	attr.qp_state = IBV_QPS_RTS;
	NEED(!ibv_modify_qp(datagram, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN));
	wr = (struct ibv_send_wr){ .sg_list = sge, .num_sge = 1, .opcode = IBV_WR_SEND };
	CODE(ibv_post_send(datagram, &wr, &bad), EINVAL);
	CODE(ibv_attach_mcast(datagram, &gid, 0), EINVAL);
	CODE(ibv_detach_mcast(datagram, &gid, 0), EINVAL);
	CODE(ibv_destroy_qp(datagram), 0);
}

/* One SEND or WRITE between fresh queue pairs; the peer offers `room` bytes. */
static void transfer(enum ibv_wr_opcode opcode, uint32_t lkey, uint32_t rkey, uint64_t remote, uint32_t room,
		     int expected, int expected_at_peer)
{
	struct ibv_cq *near = cq, *far = ibv_create_cq(context, 8, NULL, NULL, 0);
	NEED(far);
	cq = far;
	struct ibv_qp *peer = create(IBV_QPT_RC);
	cq = near;
	struct ibv_qp *qp = create(IBV_QPT_RC);
	connect(qp, peer);
	connect(peer, qp);
	struct ibv_sge sge = { (uintptr_t)memory, 64, lkey }, into = { (uintptr_t)memory + 4096, room, mr->lkey };
	struct ibv_recv_wr recv = { .sg_list = &into, .num_sge = 1 }, *bad_recv;
	struct ibv_send_wr wr[2] = {
		{ .next = &wr[1], .sg_list = &sge, .num_sge = 1, .opcode = opcode, .wr.rdma = { remote, rkey } },
		{ .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND },
	}, *bad;
	if (room)
		NEED(!ibv_post_recv(peer, &recv, &bad_recv));
	NEED(!ibv_post_send(qp, wr, &bad));
	STATUS(near, expected);
	STATUS(near, IBV_WC_WR_FLUSH_ERR);
	if (expected_at_peer)
		STATUS(far, expected_at_peer);
	CODE(ibv_post_send(qp, &wr[1], &bad), 0);
	STATUS(near, IBV_WC_WR_FLUSH_ERR);
	CODE(ibv_destroy_qp(qp), 0);
	CODE(ibv_destroy_qp(peer), 0);
	CODE(ibv_destroy_cq(far), 0);
}

static void transfers(void)
{
	uint64_t there = (uintptr_t)memory;
	uint32_t wrong = mr->lkey ^ 0x5a5a5a5a;
	transfer(IBV_WR_SEND, wrong, 0, 0, 64, IBV_WC_LOC_PROT_ERR, 0);
	/* Too long for the receive that takes it. */
	transfer(IBV_WR_SEND, mr->lkey, 0, 0, 16, IBV_WC_REM_INV_REQ_ERR, IBV_WC_LOC_LEN_ERR);
	transfer(IBV_WR_SEND, mr->lkey, 0, 0, 0, IBV_WC_RNR_RETRY_EXC_ERR, 0);
	transfer(IBV_WR_RDMA_WRITE, mr->lkey, wrong, there, 64, IBV_WC_REM_ACCESS_ERR, IBV_WC_WR_FLUSH_ERR);
	transfer(IBV_WR_RDMA_WRITE, mr->lkey, mr->rkey, there + sizeof(memory) - 10, 64, IBV_WC_REM_ACCESS_ERR,
		 IBV_WC_WR_FLUSH_ERR);
	/* The region permits it, the queue pair does not. */
	transfer(IBV_WR_RDMA_READ, mr->lkey, mr->rkey, there, 64, IBV_WC_REM_INV_REQ_ERR, IBV_WC_WR_FLUSH_ERR);
}

int main(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	NEED(list && list[0]);
	context = ibv_open_device(list[0]);
	NEED(context);
	ibv_free_device_list(list);
	pd = ibv_alloc_pd(context);
	cq = ibv_create_cq(context, 64, NULL, NULL, 0);
	NEED(pd && cq && !ibv_query_gid(context, 1, 0, &gid));
	mr = ibv_reg_mr(pd, memory, sizeof(memory),
			IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
	NEED(mr);
	devices();
	registrations();
	queues();
	creations();
	transitions();
	postings();
	transfers();
	CODE(ibv_dereg_mr(mr), 0);
	CODE(ibv_destroy_cq(cq), 0);
	CODE(ibv_dealloc_pd(pd), 0);
	CODE(ibv_close_device(context), 0);
	printf("%d of %d\n", failures, checks);
	return failures != 0;
}
