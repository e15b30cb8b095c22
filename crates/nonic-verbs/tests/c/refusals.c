/*
 * Calls that are refused, at least one of every function that can refuse. Before each, a line on standard error says which function it is
 * and a word of what the log must say (refusals.rs compares). Functions behind the header's inline ones are called directly where those
 * would follow a NULL pointer.
 */
#include <infiniband/verbs.h>
#include <fcntl.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#include "need.h"

static int refusals;

static void announce(const char *function, const char *words)
{
	refusals++;
	fprintf(stderr, "case %s|%s\n", function, words);
}

/* Functions that answer zero or an errno of either sign, or -1. */
#define CODE(function, words, call) (announce(function, words), ({ NEED((call) != 0); }))
/* Functions that answer NULL. */
#define NOTHING(function, words, call) (announce(function, words), ({ NEED((call) == NULL); }))

static struct ibv_context *context;
static struct verbs_context *verbs;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_mr *mr;
static union ibv_gid gid;
static char memory[8192] __attribute__((aligned(4096)));
static int null_fd;

/* Not in the header of every release, and exported under these names. */
int ibv_query_gid_type(struct ibv_context *context, uint8_t port, unsigned int index, unsigned int *type);
struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned int access);

static struct ibv_qp *make_qp(enum ibv_qp_type type)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = type,
	};
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	NEED(qp);
	return qp;
}

static void devices(void)
{
	struct ibv_device_attr attr;
	struct ibv_port_attr port;
	struct ibv_values_ex values;
	struct ibv_gid_entry entry;
	union ibv_gid found;
	unsigned int type;
	uint16_t pkey;

	NOTHING("ibv_open_device", "device is NULL", ibv_open_device(NULL));
	CODE("ibv_close_device", "context is NULL", ibv_close_device(NULL));
	NOTHING("ibv_import_device", "cmd_fd", ibv_import_device(null_fd));
	CODE("ibv_query_device", "context is NULL", ibv_query_device(NULL, &attr));
	CODE("ibv_query_device_ex", "comp_mask", verbs->query_device_ex(context, NULL, NULL, 0));
	CODE("ibv_query_rt_values", "ibv_values_ex", verbs->query_rt_values(NULL, NULL) ? 1 : verbs->query_rt_values(NULL, &values));
	CODE("ibv_query_port", "port_num is 2", ibv_query_port(context, 2, &port));
	CODE("ibv_query_gid", "indices below", ibv_query_gid(context, 1, 1 << 20, &found));
	CODE("ibv_query_gid_type", "index is", ibv_query_gid_type(context, 1, UINT32_MAX, &type));
	CODE("_ibv_query_gid_ex", "flags is not 0", ibv_query_gid_ex(context, 1, 0, &entry, 1));
	CODE("_ibv_query_gid_table", "max_entries 0", ibv_query_gid_table(context, &entry, 0, 0));
	CODE("ibv_query_pkey", "index 7", ibv_query_pkey(context, 1, 7, &pkey));
	CODE("ibv_get_pkey_index", "0x0001", ibv_get_pkey_index(context, 1, htobe16(1)));
	CODE("ibv_get_async_event", "context is NULL", ibv_get_async_event(NULL, NULL));
}

static void domains(void)
{
	struct ibv_td_init_attr td = { .comp_mask = 1 };
	struct ibv_parent_domain_init_attr parent = { .comp_mask = 1 << 20 };
	struct ibv_xrcd_init_attr xrcd = { .comp_mask = 0 };

	NOTHING("ibv_alloc_pd", "context is NULL", ibv_alloc_pd(NULL));
	CODE("ibv_dealloc_pd", "other objects need it", ibv_dealloc_pd(pd));
	NOTHING("ibv_import_pd", "pd_handle", ibv_import_pd(context, 1 << 30));
	NOTHING("ibv_alloc_td", "comp_mask", ibv_alloc_td(context, &td));
	CODE("ibv_dealloc_td", "ibv_td is NULL", verbs->dealloc_td(NULL));
	NOTHING("ibv_alloc_parent_domain", "comp_mask", ibv_alloc_parent_domain(context, &parent));
	NOTHING("ibv_open_xrcd", "IBV_XRCD_INIT_ATTR_FD", verbs->open_xrcd(context, &xrcd));
	CODE("ibv_close_xrcd", "ibv_xrcd is NULL", verbs->close_xrcd(NULL));
}

static void completion_queues(void)
{
	struct ibv_cq_init_attr_ex attr = { .cqe = 1, .wc_flags = UINT64_MAX };
	struct ibv_modify_cq_attr modify = { .attr_mask = 2 };
	struct ibv_poll_cq_attr poll = { .comp_mask = 1 };
	struct ibv_cq_init_attr_ex plain = { .cqe = 4 };
	struct ibv_wc wc;

	NOTHING("ibv_create_comp_channel", "context is NULL", ibv_create_comp_channel(NULL));
	CODE("ibv_destroy_comp_channel", "ibv_comp_channel is NULL", ibv_destroy_comp_channel(NULL));
	NOTHING("ibv_create_cq", "cqe is 2147483647", ibv_create_cq(context, INT32_MAX, NULL, NULL, 0));
	NOTHING("ibv_create_cq", "comp_vector is 4096", ibv_create_cq(context, 1, NULL, NULL, 4096));
	NOTHING("ibv_create_cq_ex", "wc_flags", verbs->create_cq_ex(context, &attr));
	CODE("ibv_resize_cq", "cqe is 0", ibv_resize_cq(cq, 0));
	CODE("ibv_modify_cq", "attr_mask", ibv_modify_cq(cq, &modify));
	CODE("ibv_req_notify_cq", "ibv_cq is NULL", context->ops.req_notify_cq(NULL, 0));
	CODE("ibv_destroy_cq", "ibv_cq is NULL", ibv_destroy_cq(NULL));
	CODE("ibv_get_cq_event", "ibv_comp_channel is NULL", ibv_get_cq_event(NULL, NULL, NULL));
	CODE("ibv_poll_cq", "num_entries is -1", ibv_poll_cq(cq, -1, &wc));
	struct ibv_cq_ex *extended = ibv_create_cq_ex(context, &plain);
	NEED(extended);
	CODE("ibv_start_poll", "comp_mask", ibv_start_poll(extended, &poll));
	CODE("ibv_next_poll", "ibv_cq is NULL", extended->next_poll(NULL));
	NEED(ibv_destroy_cq(ibv_cq_ex_to_cq(extended)) == 0);
}

static void memory_regions(void)
{
	struct ibv_alloc_dm_attr large = { .length = SIZE_MAX / 2 }, small = { .length = 64 };
	struct ibv_sge stray = { .addr = (uintptr_t)memory, .length = 8, .lkey = 1 };
	struct ibv_mw_bind bind = { .bind_info = { .length = 8 } };
	void *gone = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	NEED(gone != MAP_FAILED && munmap(gone, 4096) == 0);

	NOTHING("ibv_reg_mr", "is not mapped", (ibv_reg_mr)(pd, gone, 4096, IBV_ACCESS_LOCAL_WRITE));
	NOTHING("ibv_reg_mr", "local write", (ibv_reg_mr)(pd, memory, 4096, IBV_ACCESS_REMOTE_WRITE));
	NOTHING("ibv_reg_mr_iova", "is not mapped", (ibv_reg_mr_iova)(pd, gone, 4096, 0, IBV_ACCESS_LOCAL_WRITE));
	NOTHING("ibv_reg_mr_iova2", "has bits", ibv_reg_mr_iova2(pd, memory, 4096, 0, 1u << 30));
	NOTHING("ibv_reg_dmabuf_mr", "dma-buf", ibv_reg_dmabuf_mr(pd, 0, 4096, 0, 0, 0));
	CODE("ibv_dereg_mr", "ibv_mr is NULL", ibv_dereg_mr(NULL));
	CODE("ibv_rereg_mr", "flags", ibv_rereg_mr(mr, 0, pd, memory, 4096, 0));
	NOTHING("ibv_import_mr", "mr_handle", ibv_import_mr(pd, 1 << 30));
	NOTHING("ibv_alloc_null_mr", "ibv_pd is NULL", verbs->alloc_null_mr(NULL));
	CODE("ibv_advise_mr", "advice 99", ibv_advise_mr(pd, 99, 0, &stray, 1));
	CODE("ibv_advise_mr", "lkey 0x1", ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &stray, 1));
	NOTHING("ibv_alloc_mw", "type 9", ibv_alloc_mw(pd, 9));
	CODE("ibv_dealloc_mw", "ibv_mw is NULL", context->ops.dealloc_mw(NULL));
	struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_1);
	struct ibv_qp *qp = make_qp(IBV_QPT_RC);
	NEED(mw);
	CODE("ibv_bind_mw", "mr is NULL", context->ops.bind_mw(qp, mw, &bind));
	NEED(ibv_dealloc_mw(mw) == 0 && ibv_destroy_qp(qp) == 0);
	NOTHING("ibv_alloc_dm", "attr.length is", ibv_alloc_dm(context, &large));
	CODE("ibv_free_dm", "ibv_dm is NULL", verbs->free_dm(NULL));
	NOTHING("ibv_import_dm", "dm_handle", ibv_import_dm(context, 1 << 30));
	struct ibv_dm *dm = ibv_alloc_dm(context, &small);
	NEED(dm);
	NOTHING("ibv_reg_dm_mr", "ZERO_BASED", ibv_reg_dm_mr(pd, dm, 0, 64, 0));
	CODE("ibv_memcpy_to_dm", "end behind", ibv_memcpy_to_dm(dm, 60, memory, 8));
	CODE("ibv_memcpy_from_dm", "multiple of 4", ibv_memcpy_from_dm(memory, dm, 0, 3));
	NEED(ibv_free_dm(dm) == 0);
}

static void addresses(void)
{
	struct ibv_ah_attr local = { .port_num = 1 };
	struct ibv_wc wc = { .wc_flags = 0 };
	struct ibv_grh grh = { 0 };
	struct ibv_ah_attr answer;
	uint16_t vlan;
	uint8_t mac[6];

	NOTHING("ibv_create_ah", "is_global is 0", ibv_create_ah(pd, &local));
	CODE("ibv_destroy_ah", "ibv_ah is NULL", ibv_destroy_ah(NULL));
	CODE("ibv_init_ah_from_wc", "IBV_WC_GRH", ibv_init_ah_from_wc(context, 1, &wc, &grh, &answer));
	NOTHING("ibv_create_ah_from_wc", "port_num is 3", ibv_create_ah_from_wc(pd, &wc, &grh, 3));
	CODE("ibv_resolve_eth_l2_from_gid", "context is NULL", ibv_resolve_eth_l2_from_gid(NULL, &local, mac, &vlan));
}

static void receive_queues(void)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 0, .max_sge = 1 } };
	struct ibv_srq_init_attr usual = { .attr = { .max_wr = 2, .max_sge = 1 } };
	struct ibv_srq_init_attr_ex unknown = { .srq_type = 77, .comp_mask = IBV_SRQ_INIT_ATTR_TYPE, .attr = { .max_wr = 1 } };
	struct ibv_srq_attr attr = { .srq_limit = 1000 };
	struct ibv_recv_wr wr = { .num_sge = -1 }, *bad;
	uint32_t number;

	NOTHING("ibv_create_srq", "max_wr is 0", ibv_create_srq(pd, &init));
	NOTHING("ibv_create_srq_ex", "srq_type 77", verbs->create_srq_ex(context, &unknown));
	struct ibv_srq *srq = ibv_create_srq(pd, &usual);
	NEED(srq);
	CODE("ibv_modify_srq", "srq_limit is 1000", ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT));
	CODE("ibv_query_srq", "ibv_srq_attr is NULL", ibv_query_srq(srq, NULL));
	CODE("ibv_get_srq_num", "ibv_srq is NULL", verbs->get_srq_num(NULL, &number));
	CODE("ibv_post_srq_recv", "num_sge is -1", ibv_post_srq_recv(srq, &wr, &bad));
	CODE("ibv_destroy_srq", "ibv_srq is NULL", ibv_destroy_srq(NULL));
	NEED(ibv_destroy_srq(srq) == 0);
}

/* To RTR, with one thing that is wrong. */
static int to_rtr(struct ibv_qp *qp, void (*spoil)(struct ibv_qp_attr *))
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = qp->qp_num,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
		.ah_attr = { .is_global = 1, .port_num = 1, .grh = { .dgid = gid, .sgid_index = 0, .hop_limit = 1 } },
	};
	spoil(&attr);
	return ibv_modify_qp(qp, &attr,
			     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
}

static void without_gid(struct ibv_qp_attr *attr) { attr->ah_attr.is_global = 0; }
static void no_destination(struct ibv_qp_attr *attr) { memset(&attr->ah_attr.grh.dgid, 0, 16); }
static void no_mtu(struct ibv_qp_attr *attr) { attr->path_mtu = 0; }
static void second_port(struct ibv_qp_attr *attr) { attr->ah_attr.port_num = 2; }
static void long_timer(struct ibv_qp_attr *attr) { attr->min_rnr_timer = 40; }
static void far_index(struct ibv_qp_attr *attr) { attr->ah_attr.grh.sgid_index = 200; }
static void other_family(struct ibv_qp_attr *attr)
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };
	int is_v4 = !memcmp(attr->ah_attr.grh.dgid.raw, mapped, 12);
	memset(&attr->ah_attr.grh.dgid, 0, 16);
	if (!is_v4)
		memcpy(attr->ah_attr.grh.dgid.raw, mapped, 12);
	attr->ah_attr.grh.dgid.raw[15] = 9;
	attr->ah_attr.grh.dgid.raw[0] = is_v4 ? 0xfd : 0;
}

static void queue_pairs(void)
{
	struct ibv_qp_init_attr deep = { .send_cq = cq, .recv_cq = cq, .cap = { .max_send_wr = 1 << 30 }, .qp_type = IBV_QPT_RC };
	struct ibv_qp_init_attr raw = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RAW_PACKET };
	struct ibv_qp_init_attr_ex ex = { .comp_mask = 1 << 20, .qp_type = IBV_QPT_RC };
	struct ibv_qp_open_attr open = { .comp_mask = 0 };
	struct ibv_qp_rate_limit_attr rate = { .comp_mask = 1 };
	struct ibv_qp_attr init = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	struct ibv_qp_attr queried;
	struct ibv_qp_init_attr queried_init;
	struct ibv_ece ece = { .vendor_id = 0x15b3 };
	struct ibv_send_wr send = { .opcode = 99 }, *bad_send;
	struct ibv_recv_wr receive = { .num_sge = 100 }, *bad_receive;

	NOTHING("ibv_create_qp", "max_send_wr", ibv_create_qp(pd, &deep));
	NOTHING("ibv_create_qp", "RAW_PACKET", ibv_create_qp(pd, &raw));
	NOTHING("ibv_create_qp_ex", "comp_mask", verbs->create_qp_ex(context, &ex));
	NOTHING("ibv_open_qp", "IBV_QP_OPEN_ATTR_NUM", ibv_open_qp(context, &open));
	struct ibv_qp *qp = make_qp(IBV_QPT_RC);
	CODE("ibv_modify_qp", "cannot go from RESET to RTS", ibv_modify_qp(qp, &(struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS }, IBV_QP_STATE));
	NEED(ibv_modify_qp(qp, &init, IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS) == 0);
	CODE("ibv_modify_qp", "is_global and a GID", to_rtr(qp, without_gid));
	CODE("ibv_modify_qp", "grh.dgid is ::", to_rtr(qp, no_destination));
	CODE("ibv_modify_qp", "path_mtu is 0", to_rtr(qp, no_mtu));
	CODE("ibv_modify_qp", "port_num is 2", to_rtr(qp, second_port));
	CODE("ibv_modify_qp", "not of one IP version", to_rtr(qp, other_family));
	CODE("ibv_modify_qp", "min_rnr_timer is 40", to_rtr(qp, long_timer));
	CODE("ibv_modify_qp", "GID index is out of range", to_rtr(qp, far_index));
	CODE("ibv_modify_qp_rate_limit", "comp_mask", ibv_modify_qp_rate_limit(qp, &rate));
	CODE("ibv_query_qp", "ibv_qp is NULL", ibv_query_qp(NULL, &queried, 0, &queried_init));
	CODE("ibv_set_ece", "vendor", ibv_set_ece(qp, &ece));
	CODE("ibv_query_ece", "ibv_ece is NULL", ibv_query_ece(qp, NULL));
	CODE("ibv_post_send", "opcode 99", ibv_post_send(qp, &send, &bad_send));
	CODE("ibv_post_recv", "num_sge is 100", ibv_post_recv(qp, &receive, &bad_receive));
	CODE("ibv_attach_mcast", "no datagram queue pair", ibv_attach_mcast(qp, &gid, 0));
	CODE("ibv_detach_mcast", "no datagram queue pair", ibv_detach_mcast(qp, &gid, 0));
	CODE("ibv_destroy_qp", "ibv_qp is NULL", ibv_destroy_qp(NULL));
	NEED(ibv_destroy_qp(qp) == 0);
}

static void extended_posting(void)
{
	struct ibv_qp_init_attr_ex init = {
		.send_cq = cq,
		.recv_cq = cq,
		.pd = pd,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_SEND,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
	};
	struct ibv_qp *qp = ibv_create_qp_ex(context, &init);
	NEED(qp);
	struct ibv_qp_ex *extended = ibv_qp_to_qp_ex(qp);
	ibv_wr_start(extended);
	ibv_wr_set_sge(extended, 0, 0, 0);
	CODE("ibv_wr_complete", "before any request", ibv_wr_complete(extended));
	NEED(ibv_destroy_qp(qp) == 0);
}

/* Refuses the same a thousand times: the log tells it a few times at most. */
static void again_and_again(void)
{
	announce("again", "");
	for (int i = 0; i < 1000; i++)
		NEED(ibv_resize_cq(cq, -5) != 0);
}

int main(void)
{
	null_fd = open("/dev/null", O_RDWR);
	struct ibv_device **list = ibv_get_device_list(NULL);
	NEED(null_fd >= 0 && list && list[0]);
	context = ibv_open_device(list[0]);
	NEED(context);
	verbs = verbs_get_ctx(context);
	pd = ibv_alloc_pd(context);
	cq = ibv_create_cq(context, 16, NULL, NULL, 0);
	NEED(pd && cq && ibv_query_gid(context, 1, 0, &gid) == 0);
	mr = ibv_reg_mr(pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE);
	NEED(mr);
	devices();
	domains();
	completion_queues();
	memory_regions();
	addresses();
	receive_queues();
	queue_pairs();
	extended_posting();
	again_and_again();
	announce("end", "");
	NEED(ibv_dereg_mr(mr) == 0 && ibv_destroy_cq(cq) == 0 && ibv_dealloc_pd(pd) == 0);
	NEED(ibv_close_device(context) == 0);
	printf("%d refusals\n", refusals - 2);
	return 0;
}
