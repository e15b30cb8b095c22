/* Instructions of one operation between two processes of one host, counted by callgrind.
 *
 * instructions OPERATION PART COUNT SIZE
 *
 * OPERATION is send, write or read; PART is post (ibv_post_send), poll (the call of ibv_poll_cq that finds its completion; with
 * send, that of the answer's receive) or empty (a call of ibv_poll_cq that finds nothing, after that). The process that callgrind runs is the client. It starts this program once more as the server, which
 * callgrind does not follow, and talks to it by two pipes until their queue pairs are connected. Prints how many operations were counted.
 */
#define _GNU_SOURCE
#include <infiniband/verbs.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include <valgrind/callgrind.h>

#include "need.h"

/* Longer than the other process takes for anything. */
#define PATIENCE_S 20
#define ROOM (1 << 20)
#define DEPTH 64

struct end {
    union ibv_gid gid;
    uint32_t qpn;
    uint32_t rkey;
    uint64_t address;
};

static struct ibv_context *context;
static struct ibv_cq *cq;
static struct ibv_qp *qp;
static struct ibv_mr *mr;
static char *memory;
static struct end peer;
/* Answers that the server has posted, in memory of both. The client looks for an answer when it is there, and does not sleep until
 * then, or the library's own thread would take it. */
static volatile int *answers;
static int gid_index = -1;

static void share(int file)
{
    answers = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    need(answers != MAP_FAILED);
}

static double now_us(void)
{
    struct timespec now;
    need(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
    return now.tv_sec * 1e6 + now.tv_nsec / 1e3;
}

static void receive(void)
{
    struct ibv_sge sge = {.addr = (uintptr_t)memory + ROOM / 2, .length = ROOM / 2, .lkey = mr->lkey};
    struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;
    need(!ibv_post_recv(qp, &wr, &bad));
}

/* With a queue pair that has receives. */
static void open_device(void)
{
    struct ibv_device **devices = ibv_get_device_list(NULL);
    need(devices && devices[0]);
    need((context = ibv_open_device(devices[0])) != NULL);
    struct ibv_pd *pd = ibv_alloc_pd(context);
    need(pd && (cq = ibv_create_cq(context, 4 * DEPTH, NULL, NULL, 0)) != NULL);
    need((memory = aligned_alloc(4096, ROOM)) != NULL);
    memset(memory, 'x', ROOM);
    mr = ibv_reg_mr(pd, memory, ROOM, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
    need(mr);
    struct ibv_qp_init_attr init = {
        .send_cq = cq,
        .recv_cq = cq,
        .cap = {.max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 64},
        .qp_type = IBV_QPT_RC,
    };
    need((qp = ibv_create_qp(pd, &init)) != NULL);
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_INIT,
        .port_num = 1,
        .qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
    };
    need(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
    for (int posted = 0; posted < DEPTH / 2; posted++)
        receive();
}

/* Tells the other process who we are, learns who it is, and connects. */
static void connect_to_peer(int in, int out)
{
    struct end own = {.qpn = qp->qp_num, .rkey = mr->rkey, .address = (uintptr_t)memory};
    /* 127.0.0.1, as an IPv4 address is a GID of RoCEv2. */
    static const uint8_t wanted[16] = {[10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1};
    for (int index = 0; index < 16; index++) {
        struct ibv_gid_entry entry;
        if (ibv_query_gid_ex(context, 1, index, &entry, 0) == 0 && memcmp(&entry.gid, wanted, 16) == 0 &&
            entry.gid_type == IBV_GID_TYPE_ROCE_V2) {
            own.gid = entry.gid;
            gid_index = index;
        }
    }
    need(gid_index >= 0);
    need(write(out, &own, sizeof own) == sizeof own);
    need(read(in, &peer, sizeof peer) == sizeof peer);
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_RTR,
        .path_mtu = IBV_MTU_4096,
        .dest_qp_num = peer.qpn,
        .max_dest_rd_atomic = 16,
        .min_rnr_timer = 1,
        .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = peer.gid, .sgid_index = gid_index, .hop_limit = 64}},
    };
    need(!ibv_modify_qp(qp, &attr,
                        IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                            IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
    attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .timeout = 18, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 16};
    need(!ibv_modify_qp(qp, &attr,
                        IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                            IBV_QP_MAX_QP_RD_ATOMIC));
    char ready = 'r';
    need(write(out, &ready, 1) == 1 && read(in, &ready, 1) == 1);
}

static struct ibv_send_wr request(const char *operation, struct ibv_sge *sge)
{
    struct ibv_send_wr wr = {.sg_list = sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED};
    wr.wr.rdma.remote_addr = peer.address;
    wr.wr.rdma.rkey = peer.rkey;
    if (strcmp(operation, "write") == 0)
        wr.opcode = IBV_WR_RDMA_WRITE;
    else if (strcmp(operation, "read") == 0)
        wr.opcode = IBV_WR_RDMA_READ;
    else
        need(strcmp(operation, "send") == 0);
    return wr;
}

/* Answers so many messages, each with one as long, and stays until the client is gone. */
static int serve(int count)
{
    open_device();
    connect_to_peer(0, 1);
    struct ibv_wc wc[16];
    double last = now_us();
    for (int answered = 0; answered < count;) {
        need(now_us() - last < PATIENCE_S * 1e6);
        int found = ibv_poll_cq(cq, 16, wc);
        need(found >= 0);
        for (int index = 0; index < found; index++) {
            need(wc[index].status == IBV_WC_SUCCESS);
            if (wc[index].opcode != IBV_WC_RECV)
                continue;
            struct ibv_sge sge = {.addr = (uintptr_t)memory, .length = wc[index].byte_len, .lkey = mr->lkey};
            struct ibv_send_wr wr = request("send", &sge), *bad;
            receive();
            need(!ibv_post_send(qp, &wr, &bad));
            *answers = ++answered;
            last = now_us();
        }
    }
    /* The client's last completions need us, until it closes the pipe. */
    char gone;
    need(read(0, &gone, 1) == 0);
    return 0;
}

static void start_server(const char *program, const char *messages, int *in, int *out)
{
    int there[2], back[2], file = memfd_create("answers", 0);
    need(file >= 0 && ftruncate(file, 4096) == 0);
    share(file);
    char name[16];
    snprintf(name, sizeof name, "%d", file);
    need(pipe(there) == 0 && pipe(back) == 0);
    pid_t child = fork();
    need(child >= 0);
    if (child == 0) {
        need(dup2(there[0], 0) == 0 && dup2(back[1], 1) == 1);
        close(there[0]), close(there[1]), close(back[0]), close(back[1]);
        execl(program, program, "serve", messages, name, (char *)NULL);
        _exit(127);
    }
    close(there[0]), close(back[1]);
    *in = back[0];
    *out = there[1];
}

int main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "serve") == 0) {
        share(atoi(argv[3]));
        return serve(atoi(argv[2]));
    }
    need(argc == 5);
    const char *operation = argv[1];
    int posts = strcmp(argv[2], "post") == 0, finds = strcmp(argv[2], "poll") == 0, sends = strcmp(operation, "send") == 0;
    int count = atoi(argv[3]), size = atoi(argv[4]), in, out, warm = count / 10, counted = 0;
    start_server(argv[0], sends ? argv[3] : "0", &in, &out);
    open_device();
    connect_to_peer(in, out);
    for (int turn = 0; turn < count; turn++) {
        struct ibv_sge sge = {.addr = (uintptr_t)memory, .length = size, .lkey = mr->lkey};
        struct ibv_send_wr wr = request(operation, &sge), *bad;
        /* A SEND completes when the peer has acknowledged it, at a time of its own; so most are not signaled, and one that is does
         * not count. */
        int completes = !sends || turn % (DEPTH / 4) == 0;
        int counts = turn >= warm && (!sends || !completes);
        if (!completes)
            wr.send_flags = 0;
        if (posts && counts)
            CALLGRIND_TOGGLE_COLLECT;
        int refused = ibv_post_send(qp, &wr, &bad);
        if (posts && counts)
            CALLGRIND_TOGGLE_COLLECT;
        need(!refused);
        for (double begun = now_us(); sends && *answers <= turn;)
            need(now_us() - begun < PATIENCE_S * 1e6);
        for (int missing = completes + sends; missing > 0;) {
            struct ibv_wc wc[16];
            if (finds && counts)
                CALLGRIND_TOGGLE_COLLECT;
            int found = ibv_poll_cq(cq, 16, wc);
            if (finds && counts)
                CALLGRIND_TOGGLE_COLLECT;
            need(found >= 0);
            for (int index = 0; index < found; index++) {
                need(wc[index].status == IBV_WC_SUCCESS);
                if (wc[index].opcode == IBV_WC_RECV)
                    receive();
            }
            missing -= found;
        }
        counted += counts;
        if (!posts && !finds && counts) {
            struct ibv_wc wc;
            CALLGRIND_TOGGLE_COLLECT;
            int found = ibv_poll_cq(cq, 1, &wc);
            CALLGRIND_TOGGLE_COLLECT;
            need(found == 0);
        }
    }
    printf("%d\n", counted);
    return 0;
}
