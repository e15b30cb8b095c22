/* Memory that is taken away under a registration: unmapped, protected, or a file that is cut short, and then used by
 * a work request. The request must fail with an error completion; the program must live, and its other queue pairs
 * must go on working.
 *
 * Usage: vanishing CASE WHO. The memory is of one device, and the requests come from another. WHO says who serves
 * them: with "background" the program never calls into the device that has the memory, with "program" it polls it.
 * Prints how the requests ended, then "alive". */
#define _GNU_SOURCE
#include <infiniband/verbs.h>
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHECK(condition) \
	do { \
		if (!(condition)) { \
			fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #condition, strerror(errno)); \
			exit(1); \
		} \
	} while (0)

enum { SIZE = 1 << 20, LONG = 65536, PAGE = 4096, PATIENCE_S = 20 };
enum { ALL = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC };

/* One end of the conversations: a device opened for itself, with memory that stays and memory that goes. */
struct side {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	char *stays, *goes;
	struct ibv_mr *stays_mr, *goes_mr;
};

struct pair {
	struct ibv_qp *near, *far;
};

static struct side near, far;
static union ibv_gid gid;
static bool program_polls;

static char *map(int file)
{
	int flags = file < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
	char *memory = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, flags, file, 0);
	CHECK(memory != MAP_FAILED);
	return memory;
}

static void open_side(struct side *side)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	CHECK(list && list[0]);
	side->context = ibv_open_device(list[0]);
	CHECK(side->context);
	ibv_free_device_list(list);
	side->pd = ibv_alloc_pd(side->context);
	side->cq = ibv_create_cq(side->context, 64, NULL, NULL, 0);
	CHECK(side->pd && side->cq && !ibv_query_gid(side->context, 1, 0, &gid));
	side->stays = map(-1);
	side->goes = map(-1);
	side->stays_mr = ibv_reg_mr(side->pd, side->stays, SIZE, ALL);
	side->goes_mr = ibv_reg_mr(side->pd, side->goes, SIZE, ALL);
	CHECK(side->stays_mr && side->goes_mr);
}

/* Nothing of the memory is left; what was registered can be deregistered all the same. */
static void close_side(struct side *side)
{
	CHECK(!ibv_dereg_mr(side->stays_mr) && !ibv_dereg_mr(side->goes_mr) && !ibv_destroy_cq(side->cq));
	CHECK(!ibv_dealloc_pd(side->pd) && !ibv_close_device(side->context));
}

static struct ibv_qp *create(struct side *side)
{
	struct ibv_qp_init_attr init = {
		.send_cq = side->cq, .recv_cq = side->cq, .qp_type = IBV_QPT_RC, .sq_sig_all = 1,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct ibv_qp *made = ibv_create_qp(side->pd, &init);
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

static struct pair connect(void)
{
	struct pair made = { create(&near), create(&far) };
	point(made.near, made.far->qp_num);
	point(made.far, made.near->qp_num);
	return made;
}

static void destroy(struct pair pair)
{
	CHECK(!ibv_destroy_qp(pair.near) && !ibv_destroy_qp(pair.far));
}

static void post(struct ibv_qp *qp, enum ibv_wr_opcode opcode, void *local, struct ibv_mr *local_mr, uint32_t length,
		 void *remote, struct ibv_mr *remote_mr)
{
	struct ibv_sge sge = { (uintptr_t)local, length, local_mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = opcode }, *bad;
	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
		wr.wr.atomic.remote_addr = (uintptr_t)remote;
		wr.wr.atomic.rkey = remote_mr->rkey;
		wr.wr.atomic.compare_add = 1;
	} else {
		wr.wr.rdma.remote_addr = (uintptr_t)remote;
		wr.wr.rdma.rkey = remote_mr->rkey;
	}
	CHECK(!ibv_post_send(qp, &wr, &bad));
}

static enum ibv_wc_status completion(void)
{
	struct ibv_wc wc, unread;
	time_t limit = time(NULL) + PATIENCE_S;
	while (!ibv_poll_cq(near.cq, 1, &wc)) {
		if (program_polls)
			ibv_poll_cq(far.cq, 1, &unread);
		CHECK(time(NULL) < limit);
	}
	return wc.status;
}

static void show(const char *what, enum ibv_wc_status status)
{
	printf("%s: %s\n", what, ibv_wc_status_str(status));
}

/* The peer's memory is gone, and it says so. */
static void refused(const char *what, enum ibv_wr_opcode opcode, uint32_t length, char *at)
{
	struct pair pair = connect();
	post(pair.near, opcode, near.stays, near.stays_mr, length, at, far.goes_mr);
	enum ibv_wc_status status = completion();
	show(what, status);
	CHECK(status == IBV_WC_REM_ACCESS_ERR || status == IBV_WC_REM_OP_ERR);
	destroy(pair);
}

/* Our own memory is gone. */
static void refused_here(const char *what, enum ibv_wr_opcode opcode)
{
	struct pair pair = connect();
	post(pair.near, opcode, near.goes, near.goes_mr, LONG, far.stays, far.stays_mr);
	enum ibv_wc_status status = completion();
	show(what, status);
	CHECK(status == IBV_WC_LOC_PROT_ERR);
	destroy(pair);
}

/* The memory of a posted receive is gone. */
static void refused_receive(void)
{
	struct pair pair = connect();
	struct ibv_sge sge = { (uintptr_t)far.goes, PAGE, far.goes_mr->lkey };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;
	CHECK(!ibv_post_recv(pair.far, &wr, &bad));
	CHECK(!munmap(far.goes, SIZE));
	post(pair.near, IBV_WR_SEND, near.stays, near.stays_mr, PAGE, NULL, far.goes_mr);
	enum ibv_wc_status status = completion();
	show("SEND", status);
	CHECK(status == IBV_WC_REM_OP_ERR);
	destroy(pair);
}

static void works(struct pair pair)
{
	memset(near.stays, 7, LONG);
	memset(far.stays, 0, LONG);
	post(pair.near, IBV_WR_RDMA_WRITE, near.stays, near.stays_mr, LONG, far.stays, far.stays_mr);
	CHECK(completion() == IBV_WC_SUCCESS);
	CHECK(!memcmp(near.stays, far.stays, LONG));
}

static void register_file(int file)
{
	CHECK(!ibv_dereg_mr(far.goes_mr));
	far.goes = map(file);
	far.goes_mr = ibv_reg_mr(far.pd, far.goes, SIZE, ALL);
	CHECK(far.goes_mr);
}

static sigjmp_buf back;
static volatile sig_atomic_t own_faults;
static char *forbidden;
static struct sigaction found;

/* A handler as careful libraries write it: what is not its own goes to whom it found. */
static void on_fault(int signal, siginfo_t *info, void *context)
{
	if (info->si_addr == forbidden) {
		own_faults++;
		siglongjmp(back, 1);
	}
	/* Passed back to where it came from, it would come again and again. */
	static int passed;
	if (passed++ > 0)
		_exit(7);
	if (found.sa_flags & SA_SIGINFO) {
		found.sa_sigaction(signal, info, context);
		return;
	}
	sigaction(signal, &found, NULL);
}

static void install(void)
{
	struct sigaction action = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO };
	CHECK(!sigaction(SIGSEGV, &action, &found));
	forbidden = mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(forbidden != MAP_FAILED);
}

/* The program faults by itself, more than once, and its own handler hears of it. */
static void own_fault(void)
{
	for (int i = 0; i < 3; i++) {
		int before = own_faults;
		if (!sigsetjmp(back, 1))
			*(volatile char *)forbidden = 1;
		CHECK(own_faults == before + 1);
	}
}

/* A fault of the program's that nobody handles ends it as it would have without us. */
static void dies_by(int expected, void (*fault)(void))
{
	fflush(stdout);
	pid_t child = fork();
	CHECK(child >= 0);
	if (!child) {
		alarm(PATIENCE_S);
		fault();
		_exit(0);
	}
	int status;
	CHECK(waitpid(child, &status, 0) == child);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == expected);
}

static void null_fault(void)
{
	*(volatile char *)16 = 1;
}

static void sent_fault(void)
{
	kill(getpid(), SIGSEGV);
	pause();
}

static void bus_fault(void)
{
	int file = memfd_create("vanishing", MFD_CLOEXEC);
	*(volatile char *)map(file) = 1;
}

static void munmap_write(void)
{
	CHECK(!munmap(far.goes, SIZE));
	refused("WRITE", IBV_WR_RDMA_WRITE, LONG, far.goes);
}

static void munmap_read(void)
{
	CHECK(!munmap(far.goes, SIZE));
	refused("READ", IBV_WR_RDMA_READ, LONG, far.goes);
}

static void munmap_local(void)
{
	CHECK(!munmap(near.goes, SIZE));
	refused_here("WRITE from nothing", IBV_WR_RDMA_WRITE);
	refused_here("READ into nothing", IBV_WR_RDMA_READ);
}

static void munmap_atomic(void)
{
	CHECK(!munmap(far.goes, SIZE));
	refused("fetch and add", IBV_WR_ATOMIC_FETCH_AND_ADD, 8, far.goes + 64);
	refused("compare and swap", IBV_WR_ATOMIC_CMP_AND_SWP, 8, far.goes + 64);
}

/* Some packets can be placed, the rest not. */
static void munmap_part(void)
{
	CHECK(!munmap(far.goes + 4 * PAGE, PAGE));
	refused("WRITE", IBV_WR_RDMA_WRITE, LONG, far.goes);
	refused("READ", IBV_WR_RDMA_READ, LONG, far.goes);
	refused("WRITE over the edge", IBV_WR_RDMA_WRITE, 100, far.goes + 4 * PAGE - 50);
}

static void mprotect_ro(void)
{
	CHECK(!mprotect(far.goes, SIZE, PROT_READ));
	refused("WRITE", IBV_WR_RDMA_WRITE, LONG, far.goes);
	refused("fetch and add", IBV_WR_ATOMIC_FETCH_AND_ADD, 8, far.goes);
}

static void mprotect_none(void)
{
	CHECK(!mprotect(far.goes, SIZE, PROT_NONE));
	refused("READ", IBV_WR_RDMA_READ, LONG, far.goes);
}

static void small_write(void)
{
	CHECK(!munmap(far.goes, SIZE));
	refused("WRITE of 8", IBV_WR_RDMA_WRITE, 8, far.goes);
	refused("WRITE of 1", IBV_WR_RDMA_WRITE, 1, far.goes);
}

static void trunc_file(void)
{
	int file = memfd_create("vanishing", MFD_CLOEXEC);
	CHECK(file >= 0 && !ftruncate(file, SIZE));
	register_file(file);
	CHECK(!ftruncate(file, 0));
	refused("WRITE", IBV_WR_RDMA_WRITE, LONG, far.goes);
	refused("READ of 8", IBV_WR_RDMA_READ, 8, far.goes);
}

/* The program's handler was there first: see main. */
static void handler_before(void)
{
	own_fault();
	munmap_write();
	own_fault();
}

/* It comes after us, and the next registration finds it. */
static void handler_after(void)
{
	install();
	own_fault();
	struct ibv_mr *another = ibv_reg_mr(far.pd, far.stays, SIZE, ALL);
	CHECK(another && !ibv_dereg_mr(another));
	own_fault();
	munmap_write();
	own_fault();
	/* Ours passes it to the program's, that one back to ours: it must end. */
	dies_by(SIGSEGV, null_fault);
	dies_by(SIGSEGV, sent_fault);
}

static void no_handler(void)
{
	dies_by(SIGSEGV, null_fault);
	dies_by(SIGSEGV, sent_fault);
	dies_by(SIGBUS, bus_fault);
	munmap_write();
}

static void ignored(void)
{
	kill(getpid(), SIGSEGV);
	dies_by(SIGSEGV, null_fault);
	munmap_write();
}

static const struct {
	const char *name;
	void (*run)(void);
} cases[] = {
	{ "munmap_write", munmap_write },   { "munmap_read", munmap_read },     { "munmap_local", munmap_local },
	{ "munmap_atomic", munmap_atomic }, { "munmap_part", munmap_part },     { "mprotect_ro", mprotect_ro },
	{ "mprotect_none", mprotect_none }, { "free_recv", refused_receive },   { "small_write", small_write },
	{ "trunc_file", trunc_file },       { "handler_before", handler_before }, { "handler_after", handler_after },
	{ "no_handler", no_handler },       { "ignored", ignored },
};

int main(int argc, char **argv)
{
	CHECK(argc == 3);
	program_polls = !strcmp(argv[2], "program");
	alarm(2 * PATIENCE_S);
	if (!strcmp(argv[1], "handler_before"))
		install();
	if (!strcmp(argv[1], "ignored"))
		CHECK(signal(SIGSEGV, SIG_IGN) != SIG_ERR);
	open_side(&near);
	open_side(&far);
	struct pair other = connect();
	works(other);
	bool ran = false;
	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		if (!strcmp(argv[1], cases[i].name)) {
			cases[i].run();
			ran = true;
		}
	}
	CHECK(ran);
	works(other);
	destroy(other);
	close_side(&near);
	close_side(&far);
	puts("alive");
	return 0;
}
