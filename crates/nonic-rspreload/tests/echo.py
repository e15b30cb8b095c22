"""An echo server and twenty clients in one event loop, which watches them all with epoll."""
import asyncio
import select
import sys

BYTES = bytes(range(250)) * 400


async def echo(reader, writer):
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()


async def ask(port):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(BYTES)
    writer.write_eof()
    answer = await reader.read()
    writer.close()
    assert answer == BYTES, len(answer)
    return len(answer)


async def main(port):
    assert hasattr(select, "epoll")
    server = await asyncio.start_server(echo, "127.0.0.1", port)
    async with server:
        counts = await asyncio.gather(*(ask(port) for _ in range(20)))
    print(f"{len(counts)} clients, {sum(counts)} bytes back")


asyncio.run(asyncio.wait_for(main(int(sys.argv[1])), 40))
