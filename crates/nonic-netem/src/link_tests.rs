use super::*;

const PACKET: PacketInfo<'_> = PacketInfo {
    can_be_marked: true,
    ..PacketInfo::of_length(1500)
};

fn settings(text: &str) -> LinkSettings {
    let mut settings = LinkSettings::default();
    settings.change(text).expect("it is readable");
    settings
}

fn link(text: &str, seed: u64) -> EmulatedLink {
    EmulatedLink::new(settings(text), seed)
}

/// The fates of packets that come one every `gap_ns`.
fn fates(link: &mut EmulatedLink, count: u64, gap_ns: u64) -> Vec<Arrivals> {
    (0..count)
        .map(|turn| link.accept(turn * gap_ns, &PACKET))
        .collect()
}

fn arrivals(fates: &[Arrivals]) -> impl Iterator<Item = &Arrival> {
    fates.iter().flatten().flatten()
}

#[test]
fn a_plain_wire_delivers_everything_at_once_and_in_order() {
    let fates = fates(&mut link("", 1), 1000, 7);
    let expected = |turn: u64| Arrival {
        due_ns: turn * 7,
        marked: false,
        wrong_bit: None,
    };
    assert_eq!(arrivals(&fates).count(), 1000);
    assert!(
        (0..)
            .zip(arrivals(&fates))
            .all(|(turn, arrival)| *arrival == expected(turn))
    );
}

#[test]
fn the_same_seed_has_the_same_fates_and_another_has_not() {
    let text = "delay=1ms,jitter=1ms,loss=5%,burst=0.25%x4,early=1%,dup=2%,reorder=1%,corrupt=2%,rate=1gbit,queue=60k,red=10k:30k:10%";
    let run = |seed| fates(&mut link(text, seed), 20_000, 12_500);
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
fn other_faults_do_not_change_who_gets_lost() {
    let lost = |text| -> Vec<bool> {
        let fates = fates(&mut link(text, 9), 5_000, 1000);
        fates.iter().map(|fate| fate[0].is_none()).collect()
    };
    assert_eq!(
        lost("loss=3%"),
        lost("loss=3%;delay=1ms,jitter=1ms,dup=5%,corrupt=5%,early=1%")
    );
}

#[test]
fn as_many_get_lost_come_twice_are_damaged_and_are_early_as_is_said() {
    let mut link = link("delay=1ms,loss=1%,dup=5%,corrupt=2%,early=3%", 1);
    fates(&mut link, 200_000, 1000);
    let counters = link.take_counters().faults;
    // One fault strikes a packet at most: each kind has its share of those that the kinds before it left.
    let near = |count: u64, part: f64| (count as f64 / 200_000.0 / part - 1.0).abs() < 0.1;
    assert!(near(counters.lost, 0.01), "{counters:?}");
    assert!(near(counters.duplicated, 0.05 * 0.99), "{counters:?}");
    assert!(near(counters.corrupted, 0.02 * 0.99 * 0.95), "{counters:?}");
    assert!(
        near(counters.reordered, 0.03 * 0.99 * 0.95 * 0.98),
        "{counters:?}"
    );
}

#[test]
fn bursts_have_their_part_and_their_length() {
    // A burst of ten begins so often that they make up a fiftieth: 1/10 × 0.02 / 0.98.
    let fates = fates(&mut link("burst=2041ppmx10", 5), 1_000_000, 1000);
    let lost: Vec<bool> = fates.iter().map(|fate| fate[0].is_none()).collect();
    let all = lost.iter().filter(|lost| **lost).count() as f64;
    let begun = lost.windows(2).filter(|pair| !pair[0] && pair[1]).count() as f64;
    assert!((all / 1e6 / 0.02 - 1.0).abs() < 0.1, "{all}");
    assert!((all / begun / 10.0 - 1.0).abs() < 0.1, "{all} in {begun} bursts");
}

#[test]
fn delay_and_jitter_are_where_they_are_said_to_be() {
    let fates = fates(&mut link("delay=2ms,jitter=2ms", 1), 100_000, 10_000);
    let delays: Vec<u64> = (0..)
        .zip(arrivals(&fates))
        .map(|(turn, arrival)| arrival.due_ns - turn * 10_000)
        .collect();
    let mean = delays.iter().sum::<u64>() as f64 / 1e5;
    assert!((mean / 2e6 - 1.0).abs() < 0.01, "{mean}");
    assert!(delays.iter().all(|delay| *delay <= 4_000_000));
    assert!(*delays.iter().min().expect("there are some") < 10_000);
    let late: Vec<u64> = arrivals(&fates).map(|arrival| arrival.due_ns).collect();
    assert!(!late.is_sorted(), "packets overtake each other");
}

#[test]
fn who_keeps_the_order_keeps_it() {
    let fates = fates(
        &mut link("delay=2ms,jitter=2ms,early=1%,in-order", 1),
        10_000,
        10_000,
    );
    assert!(arrivals(&fates).is_sorted_by_key(|arrival| arrival.due_ns));
}

#[test]
fn a_link_is_as_fast_as_it_is_said_to_be() {
    // Twice as much comes as fits.
    let mut link = link("rate=100mbit,queue=64k", 1);
    let fates = fates(&mut link, 100_000, 60_000);
    let last = arrivals(&fates).last().expect("some arrive").due_ns;
    let bits = arrivals(&fates).count() as f64 * 1500.0 * 8.0;
    let rate = bits / (last as f64 / 1e9);
    assert!((rate / 1e8 - 1.0).abs() < 0.001, "{rate}");
    let counters = link.take_counters();
    assert!(counters.longest_queue <= 65536, "{counters:?}");
    assert!((45_000..55_000).contains(&counters.overflowed), "{counters:?}");
}

#[test]
fn a_packet_that_fits_no_queue_goes_when_the_link_is_free() {
    let mut link = link("rate=1mbit,queue=100", 1);
    assert!(link.accept(0, &PACKET)[0].is_some());
    assert!(link.accept(1, &PACKET)[0].is_none());
    assert!(link.accept(12_000_000, &PACKET)[0].is_some());
}

#[test]
fn red_marks_those_that_can_be_and_drops_the_others_before_the_queue_is_full() {
    let text = "rate=100mbit,queue=1m,red=20k:60k:10%";
    // A tenth more than the link takes: the queue grows until RED takes a tenth.
    let run = |packet: PacketInfo<'_>| {
        let mut link = link(text, 1);
        for turn in 0..3_000 {
            link.accept(turn * 109_000, &packet);
        }
        link.take_counters()
    };
    let marked = run(PACKET);
    assert!(marked.marked > 50 && marked.dropped_early == 0, "{marked:?}");
    let dropped = run(PacketInfo {
        can_be_marked: false,
        ..PACKET
    });
    assert!(dropped.marked == 0 && dropped.dropped_early > 50, "{dropped:?}");
    assert!(
        dropped.longest_queue < 200_000 && dropped.overflowed == 0,
        "{dropped:?}"
    );
}

#[test]
fn lost_packets_take_the_link_like_others() {
    let mut link = link("rate=1gbit,loss=50%,queue=100m", 1);
    let fates = fates(&mut link, 10_000, 0);
    let last = arrivals(&fates).last().expect("some arrive").due_ns;
    assert!((119_000_000..=120_000_000).contains(&last), "{last}");
}

#[test]
fn a_change_is_for_those_that_come_after() {
    let mut link = link("delay=10ms", 1);
    let before = link.accept(0, &PACKET)[0].expect("it arrives");
    link.change(&settings("loss=100%"));
    assert_eq!(before.due_ns, 10_000_000);
    assert_eq!(link.accept(1, &PACKET), [None; 2]);
    link.change(&settings(""));
    let after = link.accept(2, &PACKET)[0].expect("it arrives");
    assert_eq!(after.due_ns, 2);
}

#[test]
fn a_rule_chooses_packets_on_a_link_too() {
    let mut link = link("delay=1ms;loss=100%,peer=10.0.0.1", 1);
    let to = |address: &str| PacketInfo {
        peer: address.parse().expect("an address"),
        ..PACKET
    };
    assert_eq!(link.accept(0, &to("10.0.0.1")), [None; 2]);
    assert!(link.accept(0, &to("10.0.0.2"))[0].is_some());
}
