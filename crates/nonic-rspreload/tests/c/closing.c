/* A program that closes every descriptor it did not open, in every way there is, and goes on talking to itself over
 * TCP: ADDRESS PORT. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../../../nonic-verbs/tests/c/need.h"

enum { LENGTH = 1 << 20, END = 8192 };

static int listener, one, other, watch, highest;
static struct sockaddr_in address = { .sin_family = AF_INET };
static char sent[LENGTH], received[LENGTH];

static int is_mine(int fd)
{
	return fd < 3 || fd == listener || fd == one || fd == other || fd == watch;
}

static void *send_all(void *unused)
{
	(void)unused;
	for (size_t at = 0; at < LENGTH;) {
		ssize_t part = send(one, sent + at, LENGTH - at, 0);
		NEED(part > 0);
		at += part;
	}
	return NULL;
}

static void talk(void)
{
	pthread_t sender;
	memset(sent, sent[0] + 1, LENGTH);
	NEED(pthread_create(&sender, NULL, send_all, NULL) == 0);
	struct epoll_event event;
	NEED(epoll_wait(watch, &event, 1, 20000) == 1 && event.data.fd == other);
	for (size_t at = 0; at < LENGTH;) {
		ssize_t part = recv(other, received + at, LENGTH - at, 0);
		NEED(part > 0);
		at += part;
	}
	NEED(pthread_join(sender, NULL) == 0);
	NEED(memcmp(sent, received, LENGTH) == 0);
}

static void connect_anew(void)
{
	NEED((one = socket(AF_INET, SOCK_STREAM, 0)) >= 0);
	NEED(connect(one, (struct sockaddr *)&address, sizeof address) == 0);
	NEED((other = accept(listener, NULL, NULL)) >= 0);
	struct epoll_event event = { .events = EPOLLIN, .data.fd = other };
	NEED(epoll_ctl(watch, EPOLL_CTL_ADD, other, &event) == 0);
	highest = 0;
	for (int fd = 0; fd < END; fd++)
		if (is_mine(fd) && fd > highest)
			highest = fd;
}

int main(int count, char **arguments)
{
	NEED(count == 3);
	setvbuf(stdout, NULL, _IOLBF, 0);
	NEED(inet_pton(AF_INET, arguments[1], &address.sin_addr) == 1);
	address.sin_port = htons(atoi(arguments[2]));
	NEED((watch = epoll_create1(0)) >= 0);
	NEED((listener = socket(AF_INET, SOCK_STREAM, 0)) >= 0);
	NEED(bind(listener, (struct sockaddr *)&address, sizeof address) == 0);
	NEED(listen(listener, 4) == 0);
	connect_anew();
	talk();

	for (int fd = 3; fd < END; fd++)
		if (!is_mine(fd))
			close(fd);
	talk();
	puts("close");

	for (int fd = 3; fd <= highest; fd++)
		if (!is_mine(fd))
			NEED(close_range(fd, fd, 0) == 0);
	NEED(close_range(highest + 1, ~0U, 0) == 0);
	NEED(close_range(7, 5, 0) == -1 && errno == EINVAL);
	talk();
	puts("close_range");

	int extra = fcntl(0, F_DUPFD, END);
	NEED(extra >= END);
	closefrom(highest + 1);
	NEED(fcntl(extra, F_GETFD) == -1 && errno == EBADF);
	talk();
	puts("closefrom");

	int null = open("/dev/null", O_RDWR);
	NEED(null >= 0);
	for (int fd = 3; fd < END; fd++)
		if (!is_mine(fd) && fd != null && fcntl(fd, F_GETFD) >= 0) {
			NEED(dup2(null, fd) == -1 && errno == EBUSY);
			NEED(dup3(null, fd, O_CLOEXEC) == -1 && errno == EBUSY);
		}
	talk();
	puts("dup2");

	NEED(close(one) == 0 && close(other) == 0);
	connect_anew();
	talk();
	puts("a new connection");
	return 0;
}
