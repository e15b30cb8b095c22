/*
 * An ordinary program, linked with -libverbs: two queue pairs of one process send one message to each other over the
 * first device, waiting for the completion by event. Exits with 0 when the message has arrived.
 */
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check(int ok, const char *what)
{
	if (!ok) {
		perror(what);
		exit(1);
	}
}

static void connect_to(struct ibv_qp *qp, uint32_t peer, union ibv_gid *gid, int gid_index)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };

	check(!ibv_modify_qp(qp, &attr,
			     IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
	      "init");
	memset(&attr, 0, sizeof(attr));
	attr.qp_state = IBV_QPS_RTR;
	attr.path_mtu = IBV_MTU_1024;
	attr.dest_qp_num = peer;
	attr.rq_psn = 1;
	attr.max_dest_rd_atomic = 1;
	attr.min_rnr_timer = 12;
	attr.ah_attr.is_global = 1;
	attr.ah_attr.port_num = 1;
	attr.ah_attr.grh.dgid = *gid;
	attr.ah_attr.grh.sgid_index = gid_index;
	attr.ah_attr.grh.hop_limit = 64;
	check(!ibv_modify_qp(qp, &attr,
			     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
	      "rtr");
	memset(&attr, 0, sizeof(attr));
	attr.qp_state = IBV_QPS_RTS;
	attr.sq_psn = 1;
	attr.timeout = 14;
	attr.retry_cnt = 7;
	attr.rnr_retry = 7;
	attr.max_rd_atomic = 1;
	check(!ibv_modify_qp(qp, &attr,
			     IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
				     IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC),
	      "rts");
}

static struct ibv_wc wait_for_one(struct ibv_comp_channel *channel, struct ibv_cq *cq)
{
	struct ibv_wc wc;
	int found = ibv_poll_cq(cq, 1, &wc);

	while (found == 0) {
		struct ibv_cq *from;
		void *context;

		check(!ibv_get_cq_event(channel, &from, &context), "event");
		check(from == cq && context == channel, "the event's queue");
		ibv_ack_cq_events(cq, 1);
		check(!ibv_req_notify_cq(cq, 0), "notify");
		found = ibv_poll_cq(cq, 1, &wc);
	}
	check(found == 1, "poll");
	return wc;
}

int main(void)
{
	static char out[100000], in[100000];
	struct ibv_device **list = ibv_get_device_list(NULL);

	check(list && list[0], "a device");
	struct ibv_context *context = ibv_open_device(list[0]);
	check(context != NULL, "open");
	union ibv_gid gid;
	check(!ibv_query_gid(context, 1, 0, &gid), "gid");
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
	check(pd && channel, "pd and channel");
	struct ibv_cq *cq = ibv_create_cq(context, 8, channel, channel, 0);
	check(cq && !ibv_req_notify_cq(cq, 0), "cq");
	struct ibv_qp_init_attr init = { .send_cq = cq,
					 .recv_cq = cq,
					 .cap = { 4, 4, 1, 1, 0 },
					 .qp_type = IBV_QPT_RC,
					 .sq_sig_all = 1 };
	struct ibv_qp *left = ibv_create_qp(pd, &init), *right = ibv_create_qp(pd, &init);
	check(left && right, "qp");
	connect_to(left, right->qp_num, &gid, 0);
	connect_to(right, left->qp_num, &gid, 0);

	for (size_t i = 0; i < sizeof(out); i++)
		out[i] = (char)(i * 7);
	struct ibv_mr *from = ibv_reg_mr(pd, out, sizeof(out), 0);
	struct ibv_mr *to = ibv_reg_mr(pd, in, sizeof(in), IBV_ACCESS_LOCAL_WRITE);
	check(from && to, "mr");
	struct ibv_sge into = { (uintptr_t)in, sizeof(in), to->lkey };
	struct ibv_recv_wr receive = { .wr_id = 1, .sg_list = &into, .num_sge = 1 }, *bad_receive;
	check(!ibv_post_recv(right, &receive, &bad_receive), "post_recv");
	struct ibv_sge source = { (uintptr_t)out, sizeof(out), from->lkey };
	struct ibv_send_wr send = { .wr_id = 2, .sg_list = &source, .num_sge = 1, .opcode = IBV_WR_SEND }, *bad;
	check(!ibv_post_send(left, &send, &bad), "post_send");
	uint64_t seen = 0;
	for (int i = 0; i < 2; i++) {
		struct ibv_wc wc = wait_for_one(channel, cq);

		if (wc.status != IBV_WC_SUCCESS) {
			fprintf(stderr, "request %d: %s\n", (int)wc.wr_id, ibv_wc_status_str(wc.status));
			return 1;
		}
		seen += wc.wr_id;
	}
	check(seen == 3 && !memcmp(in, out, sizeof(out)), "the message");
	check(!ibv_destroy_qp(left) && !ibv_destroy_qp(right) && !ibv_destroy_cq(cq) &&
		      !ibv_destroy_comp_channel(channel) && !ibv_dereg_mr(from) && !ibv_dereg_mr(to) &&
		      !ibv_dealloc_pd(pd) && !ibv_close_device(context),
	      "destroy");
	ibv_free_device_list(list);
	printf("arrived\n");
	return 0;
}
