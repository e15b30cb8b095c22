//! A run can be captured, and the capture holds the packets that were sent.

use nonic_sim::{Options, run_seed};

#[test]
fn a_capture_holds_every_packet() {
    let directory = std::env::temp_dir().join(format!("nonic-sim-capture-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let path = directory.join("seed.pcapng");
    let options = Options {
        pcap: Some(path.clone()),
        ..Options::default()
    };
    let report = run_seed(3, &options).unwrap();
    assert_eq!(
        run_seed(3, &Options::default()),
        Ok(report),
        "capturing changes nothing"
    );
    let bytes = std::fs::read(&path).unwrap();
    std::fs::remove_dir_all(&directory).unwrap();
    // Section and interface headers, then one block per packet, each starting with its type and length.
    let mut blocks = 0;
    let mut rest = &bytes[..];
    while !rest.is_empty() {
        let length = u32::from_le_bytes(rest[4..8].try_into().unwrap()) as usize;
        blocks += u64::from(rest[0] == 6);
        rest = &rest[length..];
    }
    assert_eq!(blocks, report.packets);
}
