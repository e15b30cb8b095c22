/* A process that has a device and two children: one that only inherited it, and one that opened its own. Prints their numbers, and
 * ends with its standard input. */
#include <infiniband/verbs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "need.h"

/* Opens the first device and makes so many queues on it, by which it is known. */
static void open_with_queues(int count)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	NEED(list && list[0]);
	struct ibv_context *context = ibv_open_device(list[0]);
	NEED(context);
	for (int i = 0; i < count; i++)
		NEED(ibv_create_cq(context, 10, NULL, NULL, 0));
}

/* Both ends of the pipe close with the parent. */
static void stay(int parent)
{
	char byte;
	while (read(parent, &byte, 1) > 0)
		;
	_exit(0);
}

int main(void)
{
	int parent[2], ready[2];
	NEED(!pipe(parent) && !pipe(ready));
	open_with_queues(2);
	pid_t children[2];
	for (int i = 0; i < 2; i++) {
		children[i] = fork();
		NEED(children[i] >= 0);
		if (children[i] == 0) {
			close(parent[1]);
			if (i == 1)
				open_with_queues(3);
			NEED(write(ready[1], "!", 1) == 1);
			stay(parent[0]);
		}
	}
	char byte;
	NEED(read(ready[0], &byte, 1) == 1 && read(ready[0], &byte, 1) == 1);
	printf("%d %d %d\n", getpid(), children[0], children[1]);
	fflush(stdout);
	while (read(0, &byte, 1) > 0)
		;
	close(parent[1]);
	NEED(waitpid(children[0], NULL, 0) > 0 && waitpid(children[1], NULL, 0) > 0);
	return 0;
}
