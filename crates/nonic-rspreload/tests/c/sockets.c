/*
 * What programs expect of TCP sockets, one expectation per function. It runs on plain sockets, which judge the
 * expectations, and then with the preload library, which must not be noticed.
 *
 *   sockets ADDRESS PORT [NAME...]
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <netinet/tcp.h>

#define CHECK(condition)                                                                                              \
	do {                                                                                                          \
		errno = 0;                                                                                            \
		if (!(condition)) {                                                                                   \
			fprintf(stderr, "%s:%d: not so: %s (errno: %s)\n", __func__, __LINE__, #condition,            \
				strerror(errno));                                                                     \
			exit(1);                                                                                      \
		}                                                                                                     \
	} while (0)

enum { BIG = 8 << 20, PATIENCE_MS = 20000 };

static struct sockaddr_storage where;
static socklen_t where_length;

struct pair {
	int listener, client, server;
};

static int is(long answer, long wanted, int error, const char *what, const char *function, int line)
{
	int found = errno;

	if (answer == wanted && (!error || found == error))
		return 1;
	fprintf(stderr, "%s:%d: %s is %ld (%s), not %ld (%s)\n", function, line, what, answer, strerror(found), wanted,
		strerror(error));
	exit(1);
}

#define FAILS(call, error) is((call), -1, (error), #call, __func__, __LINE__)
#define IS(call, wanted) is((call), (wanted), 0, #call, __func__, __LINE__)

static long now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static int listening(int flags)
{
	int one = 1, fd = socket(where.ss_family, SOCK_STREAM | flags, 0);

	CHECK(fd >= 0);
	IS(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one), 0);
	IS(bind(fd, (struct sockaddr *)&where, where_length), 0);
	IS(listen(fd, 8), 0);
	return fd;
}

static void wait_for(int fd, short events)
{
	struct pollfd entry = { .fd = fd, .events = events };

	IS(poll(&entry, 1, PATIENCE_MS), 1);
	CHECK(entry.revents & events);
}

/* Connects without blocking, so that one thread can be both sides. */
static struct pair connected(void)
{
	struct pair p = { .listener = listening(0) };
	int error = -1;
	socklen_t length = sizeof error;

	p.client = socket(where.ss_family, SOCK_STREAM | SOCK_NONBLOCK, 0);
	CHECK(p.client >= 0);
	if (connect(p.client, (struct sockaddr *)&where, where_length))
		IS(errno, EINPROGRESS);
	p.server = accept(p.listener, NULL, NULL);
	CHECK(p.server >= 0);
	wait_for(p.client, POLLOUT);
	IS(getsockopt(p.client, SOL_SOCKET, SO_ERROR, &error, &length), 0);
	IS(error, 0);
	IS(fcntl(p.client, F_SETFL, fcntl(p.client, F_GETFL) & ~O_NONBLOCK), 0);
	return p;
}

static void closed(struct pair p)
{
	IS(close(p.client), 0);
	IS(close(p.server), 0);
	IS(close(p.listener), 0);
}

static void says(int from, int to, const char *words)
{
	char heard[256] = "";
	size_t length = strlen(words);

	IS(send(from, words, length, 0), (long)length);
	IS(recv(to, heard, length, MSG_WAITALL), (long)length);
	IS(memcmp(heard, words, length), 0);
}

static void a_socket_is_one(void)
{
	struct pair p = connected();
	struct sockaddr_storage peer, own;
	socklen_t peer_length = sizeof peer, own_length = sizeof own, length = sizeof(int);
	struct stat status;
	int value = 0;

	says(p.client, p.server, "there");
	says(p.server, p.client, "and back");
	IS(getpeername(p.client, (struct sockaddr *)&peer, &peer_length), 0);
	IS(peer.ss_family, where.ss_family);
	IS(((struct sockaddr_in *)&peer)->sin_port, ((struct sockaddr_in *)&where)->sin_port);
	IS(getsockname(p.server, (struct sockaddr *)&own, &own_length), 0);
	IS(((struct sockaddr_in *)&own)->sin_port, ((struct sockaddr_in *)&where)->sin_port);
	IS(fstat(p.client, &status), 0);
	CHECK(S_ISSOCK(status.st_mode));
	IS(getsockopt(p.client, SOL_SOCKET, SO_TYPE, &value, &length), 0);
	IS(value, SOCK_STREAM);
	IS(getsockopt(p.listener, SOL_SOCKET, SO_ACCEPTCONN, &value, &length), 0);
	IS(value, 1);
	value = 1;
	IS(setsockopt(p.client, IPPROTO_TCP, TCP_NODELAY, &value, sizeof value), 0);
	value = 0;
	IS(getsockopt(p.client, IPPROTO_TCP, TCP_NODELAY, &value, &length), 0);
	CHECK(value != 0);
	closed(p);
}

static void nobody_waits_who_does_not_want_to(void)
{
	struct pair p = connected();
	char byte;
	int on = 1, waiting = -1, more;

	IS(ioctl(p.server, FIONBIO, &on), 0);
	CHECK(fcntl(p.server, F_GETFL) & O_NONBLOCK);
	FAILS(recv(p.server, &byte, 1, 0), EAGAIN);
	FAILS(recv(p.client, &byte, 1, MSG_DONTWAIT), EAGAIN);
	IS(fcntl(p.listener, F_SETFL, O_NONBLOCK), 0);
	FAILS(accept4(p.listener, NULL, NULL, 0), EAGAIN);
	IS(write(p.client, "abc", 3), 3);
	wait_for(p.server, POLLIN);
	IS(ioctl(p.server, FIONREAD, &waiting), 0);
	CHECK(waiting >= 1 && waiting <= 3);
	IS(recv(p.server, &byte, 1, MSG_PEEK), 1);
	IS(read(p.server, &byte, 1), 1);
	IS(byte, 'a');

	more = socket(where.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	CHECK(fcntl(more, F_GETFL) & O_NONBLOCK);
	CHECK(fcntl(more, F_GETFD) & FD_CLOEXEC);
	connect(more, (struct sockaddr *)&where, where_length);
	wait_for(p.listener, POLLIN);
	close(p.server);
	p.server = accept4(p.listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	CHECK(p.server >= 0);
	CHECK(fcntl(p.server, F_GETFL) & O_NONBLOCK);
	CHECK(fcntl(p.server, F_GETFD) & FD_CLOEXEC);
	FAILS(recv(p.server, &byte, 1, 0), EAGAIN);
	close(more);
	closed(p);
}

static void nobody_listens(void)
{
	int error = 0, fd = socket(where.ss_family, SOCK_STREAM, 0);
	socklen_t length = sizeof error;

	FAILS(connect(fd, (struct sockaddr *)&where, where_length), ECONNREFUSED);
	close(fd);
	fd = socket(where.ss_family, SOCK_STREAM | SOCK_NONBLOCK, 0);
	if (connect(fd, (struct sockaddr *)&where, where_length) && errno != ECONNREFUSED) {
		struct pollfd entry = { .fd = fd, .events = POLLOUT };

		IS(errno, EINPROGRESS);
		IS(poll(&entry, 1, PATIENCE_MS), 1);
		CHECK(entry.revents & (POLLERR | POLLHUP));
		IS(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length), 0);
		IS(error, ECONNREFUSED);
	}
	close(fd);
}

static void half_a_connection_is_closed(void)
{
	struct pair p = connected();
	char bytes[8];

	IS(send(p.client, "last", 4, 0), 4);
	IS(shutdown(p.client, SHUT_WR), 0);
	IS(recv(p.server, bytes, sizeof bytes, MSG_WAITALL), 4);
	IS(recv(p.server, bytes, sizeof bytes, 0), 0);
	wait_for(p.server, POLLIN);
	IS(send(p.server, "answer", 6, 0), 6);
	IS(recv(p.client, bytes, 6, MSG_WAITALL), 6);
	IS(close(p.server), 0);
	IS(recv(p.client, bytes, sizeof bytes, 0), 0);
	IS(close(p.client), 0);
	IS(close(p.listener), 0);
}

static void copies_are_the_same_socket(void)
{
	struct pair p = connected();
	int copy = dup(p.client), other = fcntl(p.client, F_DUPFD_CLOEXEC, 100), third = open("/dev/null", O_RDWR);
	char byte;

	CHECK(copy >= 0 && other >= 100 && third >= 0);
	IS(close(p.client), 0);
	says(copy, p.server, "first");
	IS(dup2(copy, third), third);
	IS(close(copy), 0);
	says(p.server, other, "second");
	IS(close(other), 0);
	says(third, p.server, "third");
	IS(dup2(STDERR_FILENO, third), third);
	IS(recv(p.server, &byte, 1, 0), 0);
	FAILS(send(third, "x", 1, 0), ENOTSOCK);
	p.client = third;
	closed(p);
}

static void waits_know_all_kinds(void)
{
	struct pair p = connected();
	int pipes[2];
	struct timeval timeout = { .tv_usec = 30000 };
	struct timespec short_while = { .tv_nsec = 30000000 };
	fd_set readable, writable;
	long started = now_ms();
	char byte;

	IS(pipe(pipes), 0);
	struct pollfd fds[] = { { .fd = p.server, .events = POLLIN }, { .fd = pipes[0], .events = POLLIN }, { .fd = -1 } };
	IS(poll(fds, 3, 30), 0);
	IS(ppoll(fds, 3, &short_while, NULL), 0);
	FD_ZERO(&readable);
	FD_SET(p.server, &readable);
	FD_SET(pipes[0], &readable);
	IS(select(1024, &readable, NULL, NULL, &timeout), 0);
	CHECK(!FD_ISSET(p.server, &readable));
	CHECK(now_ms() - started >= 90 - 1);
	IS(write(pipes[1], "p", 1), 1);
	IS(poll(fds, 3, PATIENCE_MS), 1);
	CHECK(!fds[0].revents && fds[1].revents == POLLIN);
	IS(read(pipes[0], &byte, 1), 1);
	IS(write(p.client, "s", 1), 1);
	IS(poll(fds, 3, PATIENCE_MS), 1);
	CHECK(fds[0].revents == POLLIN && !fds[1].revents);
	FD_ZERO(&readable);
	FD_ZERO(&writable);
	FD_SET(p.server, &readable);
	FD_SET(p.client, &writable);
	FD_SET(pipes[0], &readable);
	IS(pselect(1024, &readable, &writable, NULL, NULL, NULL), 2);
	CHECK(FD_ISSET(p.server, &readable) && FD_ISSET(p.client, &writable) && !FD_ISSET(pipes[0], &readable));
	close(pipes[0]);
	close(pipes[1]);
	closed(p);
}

static uint8_t pattern(size_t at)
{
	return (uint8_t)((at * 2654435761u) >> 13);
}

static void *pours(void *argument)
{
	int fd = *(int *)argument;
	uint8_t *bytes = malloc(BIG);
	size_t done = 0;

	for (size_t at = 0; at < BIG; at++)
		bytes[at] = pattern(at);
	while (done < BIG) {
		ssize_t count = write(fd, bytes + done, BIG - done);

		CHECK(count > 0);
		done += (size_t)count;
	}
	/* What is on its way must arrive. */
	IS(close(fd), 0);
	free(bytes);
	return NULL;
}

static void drains(int fd, size_t wanted)
{
	static uint8_t bytes[70001];
	size_t done = 0;
	ssize_t count;

	while ((count = read(fd, bytes, sizeof bytes)) > 0)
		for (ssize_t at = 0; at < count; at++, done++)
			if (bytes[at] != pattern(done))
				IS(bytes[at], pattern(done));
	IS(count, 0);
	IS((long)done, (long)wanted);
}

static void closing_does_not_lose_what_was_sent(void)
{
	struct pair p = connected();
	pthread_t thread;

	IS(pthread_create(&thread, NULL, pours, &p.client), 0);
	drains(p.server, BIG);
	IS(pthread_join(thread, NULL), 0);
	IS(close(p.server), 0);
	IS(close(p.listener), 0);
}

static void pieces_and_messages(void)
{
	struct pair p = connected();
	char left[4] = "", right[8] = "";
	struct iovec out[] = { { "four", 4 }, { "and more", 8 } }, in[] = { { left, 4 }, { right, 8 } };
	struct msghdr message = { .msg_iov = out, .msg_iovlen = 2 };

	IS(writev(p.client, out, 2), 12);
	wait_for(p.server, POLLIN);
	IS(readv(p.server, in, 2), 12);
	IS(memcmp(left, "four", 4) || memcmp(right, "and more", 8), 0);
	IS(sendmsg(p.client, &message, MSG_NOSIGNAL), 12);
	memset(left, 0, sizeof left);
	message.msg_iov = in;
	wait_for(p.server, POLLIN);
	IS(recvmsg(p.server, &message, 0), 12);
	IS(memcmp(left, "four", 4) || memcmp(right, "and more", 8), 0);
	closed(p);
}

static void a_file_is_sent(void)
{
	struct pair p = connected();
	char name[] = "/tmp/sockets-XXXXXX";
	int file = mkstemp(name);
	uint8_t *bytes = malloc(100000);
	off_t from = 1000;

	CHECK(file >= 0);
	unlink(name);
	for (size_t at = 0; at < 100000; at++)
		bytes[at] = pattern(at - 1000);
	IS(write(file, bytes, 100000), 100000);
	IS(sendfile(p.client, file, &from, 40000), 40000);
	IS(from, 41000);
	IS(lseek(file, 41000, SEEK_SET), 41000);
	IS(sendfile(p.client, file, NULL, 1000000), 59000);
	IS(lseek(file, 0, SEEK_CUR), 100000);
	IS(close(p.client), 0);
	drains(p.server, 99000);
	IS(close(p.server), 0);
	IS(close(p.listener), 0);
	IS(close(file), 0);
	free(bytes);
}

static void patience_has_an_end(void)
{
	struct pair p = connected();
	struct timeval limit = { .tv_usec = 80000 }, found = { 0 };
	socklen_t length = sizeof found;
	uint8_t *bytes = calloc(1, BIG);
	long started = now_ms();
	ssize_t count, sent = 0;
	char byte;

	IS(setsockopt(p.client, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit), 0);
	IS(setsockopt(p.client, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit), 0);
	IS(getsockopt(p.client, SOL_SOCKET, SO_RCVTIMEO, &found, &length), 0);
	IS(found.tv_usec, 80000);
	FAILS(recv(p.client, &byte, 1, 0), EAGAIN);
	/* It has waited. A kernel counts this time in ticks, of which a busy host may deliver several late and at once. */
	CHECK(now_ms() - started >= 40);
	/* Nobody reads: at some time no more fits. */
	while ((count = send(p.client, bytes, BIG, 0)) > 0)
		sent += count;
	CHECK(count == -1 && sent > 0);
	free(bytes);
	closed(p);
}

static volatile sig_atomic_t signals;

static void counts(int signal)
{
	(void)signal;
	signals++;
}

static void a_reader_who_left_is_noticed(void)
{
	struct pair p = connected();
	struct pollfd entry = { .fd = p.client, .events = POLLIN };
	char byte;
	int tries = 0;

	signal(SIGPIPE, counts);
	signals = 0;
	IS(close(p.server), 0);
	IS(poll(&entry, 1, PATIENCE_MS), 1);
	IS(recv(p.client, &byte, 1, 0), 0);
	/* The first may still go out. */
	while (send(p.client, "x", 1, MSG_NOSIGNAL) == 1 && ++tries < 1000)
		usleep(1000);
	CHECK(tries < 1000);
	IS(signals, 0);
	FAILS(send(p.client, "x", 1, 0), EPIPE);
	IS(signals, 1);
	FAILS(write(p.client, "x", 1), EPIPE);
	IS(signals, 2);
	IS(close(p.client), 0);
	IS(close(p.listener), 0);
}

static void children_do_not_close_it(void)
{
	struct pair p = connected();
	int status;
	pid_t child = fork();

	CHECK(child >= 0);
	if (!child) {
		close(p.client);
		close(p.server);
		exit(0);
	}
	IS(waitpid(child, &status, 0), child);
	IS(status, 0);
	says(p.client, p.server, "still");
	child = vfork();
	if (!child) {
		close(p.client);
		dup2(p.server, STDIN_FILENO);
		_exit(0);
	}
	IS(waitpid(child, &status, 0), child);
	IS(status, 0);
	says(p.server, p.client, "here");
	closed(p);
}

static int event(int epoll, int timeout, uint64_t *data)
{
	struct epoll_event events[4];
	int count = epoll_wait(epoll, events, 4, timeout);

	CHECK(count >= 0 && count <= 1);
	if (!count)
		return 0;
	*data = events[0].data.u64;
	return (int)(events[0].events & ~(unsigned)(EPOLLRDHUP));
}

static void epoll_watches(void)
{
	struct pair p = connected();
	int epoll = epoll_create1(EPOLL_CLOEXEC), pipes[2];
	struct epoll_event watched = { .events = EPOLLIN, .data.u64 = 1 };
	uint64_t data = 0;
	char bytes[8];

	IS(pipe(pipes), 0);
	IS(epoll_ctl(epoll, EPOLL_CTL_ADD, p.server, &watched), 0);
	FAILS(epoll_ctl(epoll, EPOLL_CTL_ADD, p.server, &watched), EEXIST);
	FAILS(epoll_ctl(epoll, EPOLL_CTL_MOD, p.client, &watched), ENOENT);
	watched.data.u64 = 2;
	IS(epoll_ctl(epoll, EPOLL_CTL_ADD, pipes[0], &watched), 0);
	IS(event(epoll, 20, &data), 0);
	IS(send(p.client, "level", 5, 0), 5);
	IS(event(epoll, PATIENCE_MS, &data), EPOLLIN);
	IS((long)data, 1);
	IS(event(epoll, PATIENCE_MS, &data), EPOLLIN);
	IS(recv(p.server, bytes, 5, 0), 5);
	IS(event(epoll, 0, &data), 0);
	IS(write(pipes[1], "p", 1), 1);
	IS(event(epoll, PATIENCE_MS, &data), EPOLLIN);
	IS((long)data, 2);
	IS(read(pipes[0], bytes, 1), 1);

	/* Once per change, then once at all. */
	watched.events = EPOLLIN | EPOLLOUT | EPOLLET;
	watched.data.u64 = 3;
	IS(epoll_ctl(epoll, EPOLL_CTL_MOD, p.server, &watched), 0);
	IS(event(epoll, PATIENCE_MS, &data), EPOLLOUT);
	IS((long)data, 3);
	IS(event(epoll, 20, &data), 0);
	IS(send(p.client, "edge", 4, 0), 4);
	CHECK(event(epoll, PATIENCE_MS, &data) & EPOLLIN);
	IS(recv(p.server, bytes, 8, 0), 4);
	FAILS(recv(p.server, bytes, 8, MSG_DONTWAIT), EAGAIN);
	watched.events = EPOLLIN | EPOLLONESHOT;
	IS(epoll_ctl(epoll, EPOLL_CTL_MOD, p.server, &watched), 0);
	IS(send(p.client, "once", 4, 0), 4);
	IS(event(epoll, PATIENCE_MS, &data), EPOLLIN);
	IS(event(epoll, 20, &data), 0);
	IS(epoll_ctl(epoll, EPOLL_CTL_DEL, p.server, NULL), 0);
	FAILS(epoll_ctl(epoll, EPOLL_CTL_DEL, p.server, NULL), ENOENT);
	watched.events = EPOLLIN;
	IS(epoll_ctl(epoll, EPOLL_CTL_ADD, p.server, &watched), 0);
	IS(event(epoll, PATIENCE_MS, &data), EPOLLIN);
	IS(close(p.server), 0);
	IS(event(epoll, 20, &data), 0);
	p.server = epoll;
	close(pipes[0]);
	close(pipes[1]);
	closed(p);
}

struct later {
	int epoll, fd;
};

static void *adds_later(void *argument)
{
	struct later *later = argument;
	struct epoll_event watched = { .events = EPOLLIN, .data.u64 = 7 };

	usleep(50000);
	IS(epoll_ctl(later->epoll, EPOLL_CTL_ADD, later->fd, &watched), 0);
	return NULL;
}

static void who_waits_learns_of_what_is_added(void)
{
	struct pair p = connected();
	struct later later = { .epoll = epoll_create1(0), .fd = p.server };
	pthread_t thread;
	uint64_t data = 0;

	IS(send(p.client, "x", 1, 0), 1);
	IS(pthread_create(&thread, NULL, adds_later, &later), 0);
	IS(event(later.epoll, PATIENCE_MS, &data), EPOLLIN);
	IS((long)data, 7);
	IS(pthread_join(thread, NULL), 0);
	IS(close(later.epoll), 0);
	closed(p);
}

static const struct {
	const char *name;
	void (*check)(void);
} checks[] = {
#define CHECKED(name) { #name, name }
	CHECKED(a_socket_is_one),
	CHECKED(nobody_waits_who_does_not_want_to),
	CHECKED(nobody_listens),
	CHECKED(half_a_connection_is_closed),
	CHECKED(copies_are_the_same_socket),
	CHECKED(waits_know_all_kinds),
	CHECKED(closing_does_not_lose_what_was_sent),
	CHECKED(pieces_and_messages),
	CHECKED(a_file_is_sent),
	CHECKED(patience_has_an_end),
	CHECKED(a_reader_who_left_is_noticed),
	CHECKED(children_do_not_close_it),
	CHECKED(epoll_watches),
	CHECKED(who_waits_learns_of_what_is_added),
};

int main(int count, char **arguments)
{
	struct sockaddr_in *in = (struct sockaddr_in *)&where;
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)&where;

	CHECK(count >= 3);
	if (inet_pton(AF_INET, arguments[1], &in->sin_addr) == 1) {
		where.ss_family = AF_INET;
		where_length = sizeof *in;
	} else {
		IS(inet_pton(AF_INET6, arguments[1], &in6->sin6_addr), 1);
		where.ss_family = AF_INET6;
		where_length = sizeof *in6;
	}
	in->sin_port = htons((uint16_t)atoi(arguments[2]));
	for (size_t at = 0; at < sizeof checks / sizeof *checks; at++) {
		int wanted = count == 3;

		for (int argument = 3; argument < count; argument++)
			wanted |= !strcmp(arguments[argument], checks[at].name);
		if (!wanted)
			continue;
		checks[at].check();
		printf("%s\n", checks[at].name);
		fflush(stdout);
	}
	return 0;
}
