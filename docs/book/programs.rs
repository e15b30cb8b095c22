//! The programs of the book *RDMA from nothing to NVMe in twelve chapters*, so that `cargo test --doc -p nonic-book` runs them. Nothing is
//! built on this package.

macro_rules! chapters {
    ($($name:ident: $file:literal),* $(,)?) => {
        $(#[doc = include_str!(concat!("src/", $file))]
        pub mod $name {})*
    };
}

chapters! {
    why_dma: "00-why-dma.md",
    registration_and_keys: "01-registration-and-keys.md",
    queue_pairs_and_completions: "02-queue-pairs-and-completions.md",
    send_and_receive: "03-send-and-receive.md",
    one_sided: "04-one-sided.md",
    atomics: "05-atomics.md",
    reliability: "06-reliability.md",
    datagrams_and_multicast: "07-datagrams-and-multicast.md",
    connecting: "08-connecting.md",
    iwarp: "09-iwarp.md",
    performance: "10-performance.md",
    debugging_and_faults: "11-debugging-and-faults.md",
    messages_and_storage: "12-messages-and-storage.md",
}
