//! Bytes between two ends of a stream, on both wires: in both directions at once, by halves, to the end, and through a codec.

use crate::common::{ends, loopback, node, on_both_wires, pair, pattern, within};
use nonic_stream::{RdmaListener, RdmaStream};
use std::io::{ErrorKind, IoSlice};
use std::pin::Pin;
use std::task::{Context, Waker};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio_util::bytes::{Bytes, BytesMut};
use tokio_util::codec::{Decoder, Encoder, LengthDelimitedCodec};

const MIB: usize = 1 << 20;

#[test]
fn two_mebibytes_cross_each_other() {
    on_both_wires(|wire| async move {
        let (left, right) = pair(wire).await;
        let talk = |stream: RdmaStream| async move {
            let (mut read, mut write) = stream.into_split();
            let writing = tokio::spawn(async move {
                write.write_all(&pattern(MIB)).await.expect("written");
                write.shutdown().await.expect("shut down");
            });
            let mut bytes = Vec::new();
            read.read_to_end(&mut bytes).await.expect("read");
            assert!(bytes == pattern(MIB), "{wire}");
            writing.await.expect("no panic");
        };
        tokio::join!(talk(left), talk(right));
    });
}

#[test]
fn a_proxy_copies_both_ways() {
    on_both_wires(|wire| async move {
        let (mut client, mut front) = pair(wire).await;
        let (mut back, server) = pair(wire).await;
        let proxy = tokio::spawn(async move { tokio::io::copy_bidirectional(&mut front, &mut back).await });
        let echo = tokio::spawn(async move {
            let (mut read, mut write) = tokio::io::split(server);
            tokio::io::copy(&mut read, &mut write).await.expect("echoed");
            write.shutdown().await.expect("shut down");
        });
        let (mut read, mut write) = tokio::io::split(&mut client);
        let sent = async {
            write.write_all(&pattern(MIB)).await.expect("written");
            write.shutdown().await.expect("shut down");
        };
        let mut bytes = Vec::new();
        let (read, ()) = tokio::join!(read.read_to_end(&mut bytes), sent);
        read.expect("read");
        assert!(bytes == pattern(MIB), "{wire}");
        echo.await.expect("no panic");
        let copied = proxy.await.expect("no panic").expect("copied");
        assert_eq!(copied, (MIB as u64, MIB as u64));
    });
}

#[test]
fn the_end_of_one_direction_leaves_the_other_open() {
    on_both_wires(|wire| async move {
        let (mut left, mut right) = pair(wire).await;
        left.write_all(b"question").await.expect("written");
        // The peer does not look: its NIC has everything.
        left.shutdown().await.expect("shut down");
        let mut question = String::new();
        right.read_to_string(&mut question).await.expect("read");
        assert_eq!(question, "question");
        assert_eq!(right.read(&mut [0; 8]).await.expect("still the end"), 0);
        let refused = left.write_all(b"more").await.expect_err("it was shut down");
        assert_eq!(refused.kind(), ErrorKind::BrokenPipe, "{refused}");
        right.write_all(b"answer").await.expect("written");
        drop(right);
        let mut answer = String::new();
        left.read_to_string(&mut answer).await.expect("read");
        assert_eq!(answer, "answer");
    });
}

#[test]
fn who_accepted_can_shut_down_before_it_reads() {
    on_both_wires(|wire| async move {
        let (mut left, mut right) = pair(wire).await;
        right.write_all(b"greeting").await.expect("written");
        right.shutdown().await.expect("shut down");
        let mut greeting = String::new();
        left.read_to_string(&mut greeting).await.expect("read");
        assert_eq!(greeting, "greeting");
    });
}

#[test]
fn a_shutdown_waits_for_what_the_peer_must_read_by_itself() {
    on_both_wires(|wire| async move {
        let (mut left, mut right) = pair(wire).await;
        left.write_all(&pattern(MIB)).await.expect("written");
        let early = tokio::time::timeout(Duration::from_millis(50), left.shutdown()).await;
        assert!(early.is_err(), "{wire}: nobody has read it");
        let mut bytes = Vec::new();
        let (ended, read) = tokio::join!(left.shutdown(), right.read_to_end(&mut bytes));
        ended.expect("shut down");
        read.expect("read");
        assert!(bytes == pattern(MIB), "{wire}");
    });
}

#[test]
fn what_was_written_before_a_drop_arrives() {
    on_both_wires(|wire| async move {
        let (mut left, mut right) = pair(wire).await;
        left.write_all(b"short").await.expect("written");
        left.write_all(&pattern(MIB)).await.expect("written");
        drop(left);
        let mut bytes = Vec::new();
        right.read_to_end(&mut bytes).await.expect("an end in good order");
        assert_eq!(&bytes[..5], b"short");
        assert!(bytes[5..] == pattern(MIB), "{wire}");
    });
}

#[test]
fn the_halves_are_put_together_again_and_those_of_two_streams_are_not() {
    on_both_wires(|wire| async move {
        let (left, right) = pair(wire).await;
        let (left_read, left_write) = left.into_split();
        let (right_read, right_write) = right.into_split();
        let refused = left_read.reunite(right_write).expect_err("of two streams");
        let mut left = refused.0.reunite(left_write).expect("of one stream");
        let mut right = refused.1.reunite(right_read).expect("of one stream");
        left.write_all(b"whole").await.expect("written");
        let mut bytes = [0; 5];
        right.read_exact(&mut bytes).await.expect("read");
        assert_eq!(&bytes, b"whole");
    });
}

#[test]
fn frames_of_a_codec_come_back() {
    on_both_wires(|wire| async move {
        let (mut left, right) = pair(wire).await;
        let echo = tokio::spawn(async move {
            let (mut read, mut write) = tokio::io::split(right);
            tokio::io::copy(&mut read, &mut write).await
        });
        let mut codec = LengthDelimitedCodec::new();
        let mut received = BytesMut::new();
        for len in [0, 1, 4092, 4093, 100_000] {
            let mut frame = BytesMut::new();
            codec
                .encode(Bytes::from(pattern(len)), &mut frame)
                .expect("encoded");
            left.write_all(&frame).await.expect("written");
            let echoed = loop {
                if let Some(echoed) = codec.decode(&mut received).expect("a frame") {
                    break echoed;
                }
                assert_ne!(left.read_buf(&mut received).await.expect("read"), 0);
            };
            assert!(echoed == pattern(len), "{wire}: {len} bytes");
        }
        left.shutdown().await.expect("shut down");
        echo.await.expect("no panic").expect("echoed");
    });
}

#[test]
fn lines_are_read_where_they_arrived() {
    on_both_wires(|wire| async move {
        let (mut left, mut right) = pair(wire).await;
        for piece in ["first li", "ne\nsecond line\nthi", "rd line\n"] {
            left.write_all(piece.as_bytes()).await.expect("written");
        }
        for expected in ["first line\n", "second line\n", "third line\n"] {
            let mut line = String::new();
            right.read_line(&mut line).await.expect("a line");
            assert_eq!(line, expected);
        }
    });
}

/// Polls once, with a waker that wakes nothing.
fn write_now(stream: &mut RdmaStream, pieces: &[&[u8]]) -> usize {
    let pieces: Vec<IoSlice<'_>> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
    let mut context = Context::from_waker(Waker::noop());
    match Pin::new(stream).poll_write_vectored(&mut context, &pieces) {
        std::task::Poll::Ready(written) => written.expect("written"),
        std::task::Poll::Pending => panic!("there is room"),
    }
}

#[test]
fn pieces_that_are_written_together_arrive_together() {
    on_both_wires(|wire| async move {
        let (mut left, mut right) = pair(wire).await;
        // The acceptor's credits are there once it has heard of the other.
        left.write_all(b"!").await.expect("written");
        right.read_exact(&mut [0]).await.expect("read");
        assert_eq!(write_now(&mut right, &[b"head", b"", b"body"]), 8);
        assert_eq!(write_now(&mut right, &[b"", b"alone"]), 5);
        let mut buffer = [0; 64];
        for expected in [&b"headbody"[..], b"alone"] {
            let count = left.read(&mut buffer).await.expect("read");
            assert_eq!(&buffer[..count], expected, "{wire}");
        }
        assert_eq!(write_now(&mut right, &[]), 0);
    });
}

#[test]
fn many_streams_at_once() {
    const STREAMS: usize = 40;
    on_both_wires(|wire| async move {
        let node = node(wire);
        let listener = RdmaListener::bind_on(&node, loopback()).expect("a port");
        let address = listener.local_addr().expect("it is bound");
        let server = tokio::spawn(async move {
            for _ in 0..STREAMS {
                let (stream, _) = listener.accept().await.expect("accepted");
                tokio::spawn(async move {
                    let (mut read, mut write) = stream.into_split();
                    tokio::io::copy(&mut read, &mut write).await.expect("echoed");
                });
            }
        });
        let mut clients = tokio::task::JoinSet::new();
        for number in 0..STREAMS {
            let node = node.clone();
            clients.spawn(async move {
                let mut stream = RdmaStream::connect_on(&node, address).await.expect("connected");
                for round in 0..10 {
                    let bytes = pattern(number * 300 + round);
                    stream.write_all(&bytes).await.expect("written");
                    let mut echo = vec![0; bytes.len()];
                    stream.read_exact(&mut echo).await.expect("read");
                    assert!(echo == bytes, "{number}, {round}");
                }
            });
        }
        while let Some(client) = clients.join_next().await {
            client.expect("no panic");
        }
        server.await.expect("no panic");
    });
}

#[test]
fn dropped_futures_lose_nothing() {
    on_both_wires(|wire| async move {
        let (mut left, mut right) = pair(wire).await;
        let mut context = Context::from_waker(Waker::noop());
        let (mut written, mut read) = (Vec::new(), Vec::new());
        for round in 0..200u8 {
            // A read that is polled once and forgotten, unless something is there.
            let mut bytes = [0; 3];
            let mut buffer = ReadBuf::new(&mut bytes);
            let _ = Pin::new(&mut right).poll_read(&mut context, &mut buffer);
            read.extend_from_slice(buffer.filled());
            // A write that may or may not find room in its one poll.
            if Pin::new(&mut left)
                .poll_write(&mut context, &[round; 3])
                .is_ready()
            {
                written.extend([round; 3]);
            }
        }
        drop(left);
        right.read_to_end(&mut read).await.expect("read");
        assert!(written.len() > 90, "{wire}: the credits' worth at least");
        assert_eq!(read, written, "{wire}");
    });
}

#[test]
fn a_writer_waits_for_a_reader_that_does_not_read() {
    on_both_wires(|wire| async move {
        let (mut left, mut right) = pair(wire).await;
        let mut context = Context::from_waker(Waker::noop());
        let bytes = pattern(MIB);
        let mut written = 0;
        while let std::task::Poll::Ready(count) = Pin::new(&mut left).poll_write(&mut context, &bytes) {
            written += count.expect("written");
            assert!(written <= 64 * MIB, "{wire}: no end");
        }
        let mut read = 0;
        let mut buffer = vec![0; MIB];
        while read < written {
            read += right.read(&mut buffer).await.expect("read");
        }
        left.write_all(b"on").await.expect("there is room again");
        right.read_exact(&mut buffer[..2]).await.expect("read");
        assert_eq!(&buffer[..2], b"on");
    });
}

#[test]
fn the_device_is_found_by_address() {
    within(async {
        let listener = RdmaListener::bind("localhost:0").await.expect("a port");
        let address = listener.local_addr().expect("it is bound");
        let (connected, accepted) = tokio::join!(RdmaStream::connect(address), listener.accept());
        let (mut connected, (mut accepted, peer)) =
            (connected.expect("connected"), accepted.expect("accepted"));
        assert_eq!(peer.ip(), address.ip());
        assert_eq!(connected.peer_addr().expect("it is connected"), address);
        connected.write_all(b"x").await.expect("written");
        accepted.read_exact(&mut [0]).await.expect("read");
        let taken = RdmaListener::bind(address).await.expect_err("the port is taken");
        assert_eq!(taken.kind(), ErrorKind::AddrInUse, "{taken}");
        let foreign = RdmaListener::bind("192.0.2.1:0")
            .await
            .expect_err("no address of ours");
        assert_eq!(foreign.kind(), ErrorKind::AddrNotAvailable, "{foreign}");
    })
    .expect("in time");
}

#[test]
fn all_addresses_can_be_listened_at() {
    within(async {
        let listener = RdmaListener::bind("0.0.0.0:0").await.expect("a port");
        let address = listener.local_addr().expect("it is bound");
        assert!(address.ip().is_unspecified());
        let (connected, accepted) = tokio::join!(
            RdmaStream::connect(("127.0.0.1", address.port())),
            listener.accept()
        );
        let (mut connected, (mut accepted, _)) = (connected.expect("connected"), accepted.expect("accepted"));
        connected.write_all(b"x").await.expect("written");
        accepted.read_exact(&mut [0]).await.expect("read");
    })
    .expect("in time");
}

#[test]
fn a_listener_outlives_its_streams_and_serves_the_next() {
    on_both_wires(|wire| async move {
        let node = node(wire);
        let listener = RdmaListener::bind_on(&node, loopback()).expect("a port");
        for _ in 0..20 {
            let (mut left, right) = ends(&node, &listener).await;
            drop(right);
            assert_eq!(left.read(&mut [0; 8]).await.expect("an end in good order"), 0);
        }
    });
}
