//! However a program cuts its writes and its reads, the same bytes come out in the same order.

use crate::common::{WIRES, pair, pattern, within};
use proptest::prelude::*;
use std::io::IoSlice;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// One write: its pieces, which go as one message if there is more than one.
fn writes() -> impl Strategy<Value = Vec<Vec<usize>>> {
    let piece = prop_oneof![
        0..20usize,
        4000..4200usize,
        16_000..17_000usize,
        260_000..265_000usize
    ];
    let pieces = prop::collection::vec(piece, 1..4);
    prop::collection::vec(pieces, 0..12)
}

fn reads() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(
        prop_oneof![1..20usize, 1000..5000usize, 100_000..300_000usize],
        1..8,
    )
}

async fn write_split(mut stream: nonic_stream::RdmaStream, bytes: &[u8], writes: &[Vec<usize>]) {
    let mut at = 0;
    for pieces in writes {
        let end = at + pieces.iter().sum::<usize>();
        while at < end {
            // What one write did not take comes first in the next.
            let mut from = at;
            let mut slices = Vec::new();
            for piece in pieces {
                let upto = (from + piece).min(end);
                slices.push(IoSlice::new(&bytes[from..upto]));
                from = upto;
            }
            at += stream.write_vectored(&slices).await.expect("written");
        }
    }
    stream.shutdown().await.expect("shut down");
}

async fn read_split(mut stream: nonic_stream::RdmaStream, reads: &[usize]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for size in reads.iter().cycle() {
        let mut buffer = vec![0; *size];
        match stream.read(&mut buffer).await.expect("read") {
            0 => break,
            count => bytes.extend_from_slice(&buffer[..count]),
        }
    }
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_split_of_writes_and_reads_gives_the_same_bytes(
        writes in writes(), reads in reads(), wire in prop::sample::select(&WIRES[..])
    ) {
        let bytes = pattern(writes.iter().flatten().sum());
        let read = within(async {
            let (left, right) = pair(wire).await;
            let ((), read) = tokio::join!(write_split(left, &bytes, &writes), read_split(right, &reads));
            read
        });
        prop_assert!(read.expect("in time") == bytes);
    }
}
