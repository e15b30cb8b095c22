//! Spans that a program's own `tracing` subscriber gets: of requests and of connecting, within those of the program.

use crate::bench::{Ends, WIRES, deserted};
use nonic::{Access, ConnectOptions, Device, Domain, Exposed, Rc, connect_with};
use std::collections::HashMap;
use std::fmt::{Debug, Write as _};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::with_default;
use tracing::{Event, Metadata, Subscriber};

/// Keeps what spans were like when they ended.
#[derive(Clone, Default)]
struct Collector(Arc<Mutex<Collected>>);

#[derive(Default)]
struct Collected {
    count: u64,
    open: HashMap<u64, Open>,
    /// The spans that this thread is in.
    entered: Vec<u64>,
    ended: Vec<String>,
}

struct Open {
    name: &'static str,
    target: &'static str,
    parent: Option<&'static str>,
    fields: Fields,
}

#[derive(Default)]
struct Fields(String);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, " {}={value:?}", field.name()).expect("a string takes it");
    }
}

impl Collector {
    fn ended(&self) -> Vec<String> {
        self.0.lock().expect("nobody panicked").ended.clone()
    }
}

impl Subscriber for Collector {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_span()
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut all = self.0.lock().expect("nobody panicked");
        all.count += 1;
        let id = all.count;
        let parent = all.entered.last().map(|parent| all.open[parent].name);
        let mut fields = Fields::default();
        span.record(&mut fields);
        let open = Open {
            name: span.metadata().name(),
            target: span.metadata().target(),
            parent,
            fields,
        };
        all.open.insert(id, open);
        Id::from_u64(id)
    }

    fn record(&self, span: &Id, values: &Record<'_>) {
        let mut all = self.0.lock().expect("nobody panicked");
        let open = all.open.get_mut(&span.into_u64()).expect("it is open");
        values.record(&mut open.fields);
    }

    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}

    fn event(&self, _event: &Event<'_>) {}

    fn enter(&self, span: &Id) {
        self.0
            .lock()
            .expect("nobody panicked")
            .entered
            .push(span.into_u64());
    }

    fn exit(&self, _span: &Id) {
        self.0.lock().expect("nobody panicked").entered.pop();
    }

    fn try_close(&self, span: Id) -> bool {
        let mut all = self.0.lock().expect("nobody panicked");
        let Open {
            name,
            target,
            parent,
            fields: Fields(fields),
        } = all.open.remove(&span.into_u64()).expect("it was open");
        let within = parent
            .map(|parent| format!(" within {parent}"))
            .unwrap_or_default();
        all.ended.push(format!("{target} {name}{within}:{fields}"));
        true
    }
}

fn shelf(domain: &Domain, rights: Access) -> Exposed {
    let lease = domain.lease(64).expect("memory");
    lease.expose(rights).expect("exposed")
}

#[test]
fn a_request_is_a_span_from_when_it_is_made_until_it_has_completed() {
    for wire in WIRES {
        let Ends {
            domain,
            client,
            server: _server,
        } = Ends::new(wire);
        let shelf = shelf(&domain, Access::REMOTE_WRITE);
        let collector = Collector::default();
        with_default(collector.clone(), || {
            let request = tracing::info_span!("of_the_program").in_scope(|| {
                let hello = domain.lease_from(b"hello").expect("memory");
                client.write(hello, shelf.remote().slice(..5))
            });
            request.wait().expect("it is written");
        });
        let qpn = client.pair.endpoint().qpn.value();
        let outer = concat!(module_path!(), " of_the_program:").to_owned();
        let request = format!(
            "nonic::request request within of_the_program: op=WRITE qpn={qpn:#08x} bytes=5 outcome=success"
        );
        assert_eq!(collector.ended(), [outer, request], "{wire}");
    }
}

#[test]
fn one_that_is_dropped_goes_on_and_one_that_fails_says_why() {
    let Ends {
        domain,
        client,
        server,
    } = Ends::new("roce_lo");
    let collector = Collector::default();
    let error = with_default(collector.clone(), || {
        drop(client.send_bytes(b"hello"));
        let receive = server.recv(domain.lease(64).expect("memory"));
        receive.wait().expect("it came");
        let hello = domain.lease_from(b"hello").expect("memory");
        let shelf = shelf(&domain, Access::REMOTE_READ);
        let failed = client.write(hello, shelf.remote().slice(..5)).wait();
        failed.expect_err("it may only be read").error
    });
    let ended = collector.ended();
    let has = |op: &str, outcome: &str| {
        let parts = [&format!("op={op} "), outcome];
        ended
            .iter()
            .any(|span| parts.iter().all(|part| span.contains(*part)))
    };
    assert!(has("SEND", "bytes=5 outcome=success"), "{ended:?}");
    assert!(has("receive", "bytes=64 outcome=success"), "{ended:?}");
    assert!(has("WRITE", &format!("bytes=5 outcome={error}")), "{ended:?}");
    assert_eq!(ended.len(), 3, "{ended:?}");
}

#[test]
fn connecting_is_a_span_that_ends_with_what_came_of_it() {
    let domain = Device::open("roce_lo").expect("loopback is there").domain();
    let collector = Collector::default();
    let peer = (deserted(), 7).into();
    let error = with_default(collector.clone(), || {
        let options = ConnectOptions {
            patience: Duration::from_millis(300),
            ..ConnectOptions::default()
        };
        let asked = connect_with(domain.pair_builder::<Rc>(), peer, &options, b"").expect("it is asked");
        asked.wait().expect_err("nobody is there")
    });
    let expected = format!("nonic::cm connect: peer={peer} outcome={error}");
    assert_eq!(collector.ended(), [expected]);
}
