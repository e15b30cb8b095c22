/* Memory that comes and goes: a region registered on demand is used before it is mapped, while it is mapped and
 * after it is gone. An access to nothing must end in an error completion; the program must live.
 *
 * Prints "alive" at the end. */
#include <infiniband/verbs.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define CHECK(condition) \
	do { \
		if (!(condition)) { \
			fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #condition, strerror(errno)); \
			exit(1); \
		} \
	} while (0)

enum { SIZE = 8192 };

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static union ibv_gid gid;
static struct ibv_qp *qp, *peer;
static char *local;
static struct ibv_mr *local_mr;

static struct ibv_qp *create(struct ibv_cq *queue)
{
	struct ibv_qp_init_attr init = {
		.send_cq = queue, .recv_cq = queue, .qp_type = IBV_QPT_RC, .sq_sig_all = 1,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct ibv_qp *made = ibv_create_qp(pd, &init);
	CHECK(made);
	return made;
}

static void point(struct ibv_qp *at, uint32_t destination)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT, .port_num = 1, .path_mtu = IBV_MTU_1024, .dest_qp_num = destination,
		.qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
				   IBV_ACCESS_REMOTE_ATOMIC,
		.max_dest_rd_atomic = 4, .max_rd_atomic = 4, .min_rnr_timer = 1, .timeout = 14, .retry_cnt = 7,
		.rnr_retry = 7, .ah_attr = { .is_global = 1, .port_num = 1, .grh = { .dgid = gid } },
	};
	CHECK(!ibv_modify_qp(at, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	attr.qp_state = IBV_QPS_RTR;
	CHECK(!ibv_modify_qp(at, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	attr.qp_state = IBV_QPS_RTS;
	CHECK(!ibv_modify_qp(at, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
}

/* Fresh queue pairs; an error has used up the old ones. */
static void connect(void)
{
	if (qp)
		CHECK(!ibv_destroy_qp(qp) && !ibv_destroy_qp(peer));
	qp = create(cq);
	peer = create(cq);
	point(qp, peer->qp_num);
	point(peer, qp->qp_num);
}

static enum ibv_wc_status run(enum ibv_wr_opcode opcode, void *from, uint32_t lkey, void *to, uint32_t rkey,
			      uint32_t length)
{
	struct ibv_sge sge = { (uintptr_t)from, length, lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = opcode }, *bad;
	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = (uintptr_t)to;
		wr.wr.atomic.rkey = rkey;
		wr.wr.atomic.compare_add = 1;
	} else {
		wr.wr.rdma.remote_addr = (uintptr_t)to;
		wr.wr.rdma.rkey = rkey;
	}
	CHECK(!ibv_post_send(qp, &wr, &bad));
	struct ibv_wc wc;
	time_t limit = time(NULL) + 20;
	while (!ibv_poll_cq(cq, 1, &wc))
		CHECK(time(NULL) < limit);
	return wc.status;
}

/* Every kind of access to `memory`, from afar and as the source of a WRITE. */
static void access_all(char *memory, uint32_t key, int there)
{
	static const enum ibv_wr_opcode kinds[] = { IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD };
	for (unsigned i = 0; i < 3; i++) {
		connect();
		enum ibv_wc_status status = run(kinds[i], local, local_mr->lkey, memory + 4096, key, i == 2 ? 8 : 4096);
		CHECK(there == (status == IBV_WC_SUCCESS));
		CHECK(there || status == IBV_WC_REM_OP_ERR || status == IBV_WC_REM_ACCESS_ERR);
	}
	connect();
	enum ibv_wc_status status = run(IBV_WR_RDMA_WRITE, memory, key, local, local_mr->rkey, 4096);
	CHECK(status == (there ? IBV_WC_SUCCESS : IBV_WC_LOC_PROT_ERR));
}

int main(void)
{
	int all = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
	struct ibv_device **list = ibv_get_device_list(NULL);
	CHECK(list && list[0]);
	context = ibv_open_device(list[0]);
	CHECK(context);
	ibv_free_device_list(list);
	pd = ibv_alloc_pd(context);
	cq = ibv_create_cq(context, 64, NULL, NULL, 0);
	CHECK(pd && cq && !ibv_query_gid(context, 1, 0, &gid));
	local = aligned_alloc(4096, SIZE);
	local_mr = ibv_reg_mr(pd, local, SIZE, all);
	CHECK(local && local_mr);

	/* A place that is free now. */
	char *place = mmap(NULL, SIZE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(place != MAP_FAILED && !munmap(place, SIZE));
	struct ibv_mr *some = ibv_reg_mr(pd, place, SIZE, all | IBV_ACCESS_ON_DEMAND);
	struct ibv_mr *any = ibv_reg_mr(pd, NULL, SIZE_MAX, all | IBV_ACCESS_ON_DEMAND);
	CHECK(some && any);
	access_all(place, some->rkey, 0);
	access_all(place, any->rkey, 0);

	struct ibv_sge sge = { (uintptr_t)place, SIZE, some->lkey };
	CHECK(ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH, IBV_ADVISE_MR_FLAG_FLUSH, &sge, 1) == EFAULT);
	CHECK(mmap(place, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == place);
	CHECK(!ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, IBV_ADVISE_MR_FLAG_FLUSH, &sge, 1));
	access_all(place, some->rkey, 1);
	access_all(place, any->rkey, 1);

	CHECK(!munmap(place, SIZE));
	access_all(place, some->rkey, 0);
	access_all(place, any->rkey, 0);
	CHECK(!ibv_destroy_qp(qp) && !ibv_destroy_qp(peer) && !ibv_dereg_mr(some) && !ibv_dereg_mr(any));
	CHECK(!ibv_dereg_mr(local_mr) && !ibv_destroy_cq(cq) && !ibv_dealloc_pd(pd) && !ibv_close_device(context));
	puts("alive");
	return 0;
}
