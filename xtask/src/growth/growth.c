/* What one more costs beside few others and beside many, in processor time of the whole process: the library's threads work for
 * it, too, and a machine that is busy otherwise does not change it much.
 *
 * growth SUBJECT FEW MANY ROUNDS: makes FEW and takes them away again, then MANY, as often as ROUNDS says. Prints four numbers:
 * the least nanoseconds that making one took beside few and beside many, and the same for taking one away.
 */
#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <limits.h>
#include <malloc.h>
#include <rdma/rdma_cma.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "need.h"

/* Requests to connect or disconnect that are under way at a time. */
#define UNDER_WAY 64
#define PIECE 64

static struct rdma_event_channel *channel;
static struct rdma_cm_id *first;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static int most;

/* Each listener takes some. */
static void allow_descriptors(void)
{
    struct rlimit limit;
    need(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    limit.rlim_cur = limit.rlim_max;
    need(setrlimit(RLIMIT_NOFILE, &limit) == 0);
}

static double processor_ns(void)
{
    struct timespec now;
    need(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now) == 0);
    return now.tv_sec * 1e9 + now.tv_nsec;
}

static struct sockaddr_in here(int port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

static struct rdma_cm_id *bound(void)
{
    struct rdma_cm_id *id;
    struct sockaddr_in address = here(0);
    need(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0);
    need(rdma_bind_addr(id, (struct sockaddr *)&address) == 0);
    return id;
}

static struct ibv_qp_init_attr small_queues(void)
{
    struct ibv_qp_init_attr wanted = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC};
    wanted.cap.max_send_wr = wanted.cap.max_recv_wr = 1;
    wanted.cap.max_send_sge = wanted.cap.max_recv_sge = 1;
    return wanted;
}

/* Memory keys. */

static struct ibv_mr **keys;
static char *memory;

static void keys_open(int count)
{
    for (int i = 0; i < count; i++) {
        keys[i] = ibv_reg_mr(pd, memory + (size_t)i * PIECE, PIECE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
        need(keys[i]);
    }
}

static void keys_close(int count)
{
    for (int i = 0; i < count; i++)
        need(ibv_dereg_mr(keys[i]) == 0);
}

/* Queue pairs. */

static struct ibv_qp **pairs;

static void pairs_open(int count)
{
    for (int i = 0; i < count; i++) {
        struct ibv_qp_init_attr wanted = small_queues();
        need(pairs[i] = ibv_create_qp(pd, &wanted));
    }
}

static void pairs_close(int count)
{
    for (int i = 0; i < count; i++)
        need(ibv_destroy_qp(pairs[i]) == 0);
}

/* Listeners. */

static struct rdma_cm_id **ids;

static void listeners_open(int count)
{
    for (int i = 0; i < count; i++) {
        ids[i] = bound();
        need(rdma_listen(ids[i], 16) == 0);
    }
}

static void listeners_close(int count)
{
    for (int i = 0; i < count; i++)
        need(rdma_destroy_id(ids[i]) == 0);
}

/* Connections, both ends in this process. */

static struct rdma_cm_id **accepted;
static int asked, taken, ready, ended;

static void ask(struct sockaddr_in *server)
{
    need(rdma_create_id(channel, &ids[asked], NULL, RDMA_PS_TCP) == 0);
    need(rdma_resolve_addr(ids[asked], NULL, (struct sockaddr *)server, 2000) == 0);
    asked++;
}

static void handle(struct rdma_cm_event *event)
{
    struct rdma_cm_id *id = event->id;
    struct rdma_conn_param options = {.responder_resources = 1, .initiator_depth = 1, .retry_count = 7};
    struct ibv_qp_init_attr wanted = small_queues();
    switch (event->event) {
    case RDMA_CM_EVENT_ADDR_RESOLVED:
        need(rdma_resolve_route(id, 2000) == 0);
        break;
    case RDMA_CM_EVENT_ROUTE_RESOLVED:
        need(rdma_create_qp(id, pd, &wanted) == 0);
        need(rdma_connect(id, &options) == 0);
        break;
    case RDMA_CM_EVENT_CONNECT_REQUEST:
        need(rdma_create_qp(id, pd, &wanted) == 0);
        need(rdma_accept(id, &options) == 0);
        accepted[taken++] = id;
        break;
    case RDMA_CM_EVENT_ESTABLISHED:
        ready++;
        break;
    case RDMA_CM_EVENT_DISCONNECTED:
        ended++;
        break;
    case RDMA_CM_EVENT_TIMEWAIT_EXIT:
        break;
    default:
        fprintf(stderr, "%s, status %d\n", rdma_event_str(event->event), event->status);
        exit(1);
    }
}

static void wait_for_event(void)
{
    struct rdma_cm_event *event;
    need(rdma_get_cm_event(channel, &event) == 0);
    handle(event);
    need(rdma_ack_cm_event(event) == 0);
}

static void connections_open(int count)
{
    struct sockaddr_in server = here(ntohs(rdma_get_src_port(first)));
    asked = taken = ready = 0;
    while (ready < 2 * count) {
        while (asked < count && asked < ready / 2 + UNDER_WAY)
            ask(&server);
        wait_for_event();
    }
}

static void connections_close(int count)
{
    int told = 0;
    ended = 0;
    while (ended < 2 * count) {
        while (told < count && told < ended / 2 + UNDER_WAY)
            need(rdma_disconnect(ids[told++]) == 0);
        wait_for_event();
    }
    for (int i = 0; i < count; i++) {
        struct rdma_cm_id *both[] = {ids[i], accepted[i]};
        for (int side = 0; side < 2; side++) {
            rdma_destroy_qp(both[side]);
            need(rdma_destroy_id(both[side]) == 0);
        }
    }
}

static const struct {
    const char *name;
    void (*open)(int count);
    void (*close)(int count);
} subjects[] = {
    {"memory-keys", keys_open, keys_close},
    {"queue-pairs", pairs_open, pairs_close},
    {"listeners", listeners_open, listeners_close},
    {"connections", connections_open, connections_close},
};

static void least(double *known, double found)
{
    if (*known == 0 || found < *known)
        *known = found;
}

int main(int count, char **arguments)
{
    need(count == 5);
    int counts[] = {atoi(arguments[2]), atoi(arguments[3])}, rounds = atoi(arguments[4]);
    most = counts[1];
    allow_descriptors();
    /* Memory stays: to give much of it back and fault it in again would be the C library's growth. */
    need(mallopt(M_TRIM_THRESHOLD, INT_MAX) && mallopt(M_MMAP_MAX, 0));
    need(channel = rdma_create_event_channel());
    first = bound();
    need(rdma_listen(first, 1024) == 0);
    need(pd = ibv_alloc_pd(first->verbs));
    need(cq = ibv_create_cq(first->verbs, 4, NULL, NULL, 0));
    need(keys = calloc(most, sizeof *keys));
    need(pairs = calloc(most, sizeof *pairs));
    need(ids = calloc(most, sizeof *ids));
    need(accepted = calloc(most, sizeof *accepted));
    need(memory = malloc((size_t)most * PIECE));
    memset(memory, 1, (size_t)most * PIECE);
    for (size_t i = 0; i < sizeof subjects / sizeof *subjects; i++) {
        double made[2] = {0, 0}, gone[2] = {0, 0};
        if (strcmp(subjects[i].name, arguments[1]) != 0)
            continue;
        for (int round = 0; round < rounds; round++) {
            for (int size = 0; size < 2; size++) {
                double before = processor_ns();
                subjects[i].open(counts[size]);
                double between = processor_ns();
                subjects[i].close(counts[size]);
                double after = processor_ns();
                least(&made[size], (between - before) / counts[size]);
                least(&gone[size], (after - between) / counts[size]);
            }
        }
        printf("%.0f %.0f %.0f %.0f\n", made[0], made[1], gone[0], gone[1]);
        return 0;
    }
    fprintf(stderr, "there is no %s\n", arguments[1]);
    return 1;
}
