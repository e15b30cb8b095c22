//! HTTP and gRPC over TCP, RoCE and iWARP on loopback: requests per second and latencies, one table in Markdown.
//!
//! `cargo run --release -p nonic-web-examples --example web_bench [SECONDS]`; each cell takes so many seconds, one by default, in
//! rounds that alternate between the wires so that all see the same machine.

use anyhow::{Result, anyhow};
use axum::serve::ListenerExt;
use bytes::Bytes;
use nonic_stream::{Node, RdmaListener, RdmaStream};
use nonic_web_examples::grpc::{EchoClient, EchoService};
use nonic_web_examples::http::{HttpClient, router};
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;

const SIZES: [usize; 3] = [64, 4 << 10, 64 << 10];
const WIRES: [&str; 3] = ["tcp", "roce_lo", "iwarp_lo"];
const ROUNDS: u32 = 4;
/// Connections at a time, each with one request at a time.
const CLIENTS: usize = 4;

/// What is measured: a service on a wire.
struct Service {
    grpc: bool,
    wire: &'static str,
    /// The device, if it is not TCP.
    node: Option<Node>,
    address: SocketAddr,
}

enum Client {
    Http(HttpClient),
    Grpc(EchoClient),
}

#[tokio::main]
async fn main() -> Result<()> {
    let seconds: f64 = std::env::args().nth(1).map_or(Ok(1.0), |text| text.parse())?;
    let slice = Duration::from_secs_f64(seconds) / ROUNDS;
    println!("| service | bytes each way | wire | requests/s | P50 µs | P99 µs |");
    println!("|---|---|---|---|---|---|");
    for grpc in [false, true] {
        let mut services = Vec::new();
        for wire in WIRES {
            services.push(Service::start(grpc, wire).await?);
        }
        for size in SIZES {
            let mut latencies = vec![Vec::new(); services.len()];
            for _ in 0..ROUNDS {
                for (service, latencies) in services.iter().zip(&mut latencies) {
                    latencies.extend(service.measure(size, slice).await?);
                }
            }
            for (service, latencies) in services.iter().zip(&mut latencies) {
                latencies.sort_unstable();
                let name = if grpc {
                    "gRPC (tonic)"
                } else {
                    "HTTP/1.1 (axum, hyper)"
                };
                let rate = latencies.len() as f64 / seconds;
                let at = |part: f64| latencies[(latencies.len() as f64 * part) as usize].as_micros();
                let (wire, p50, p99) = (service.wire, at(0.5), at(0.99));
                println!("| {name} | {size} | {wire} | {rate:.0} | {p50} | {p99} |");
            }
        }
    }
    Ok(())
}

impl Service {
    async fn start(grpc: bool, wire: &'static str) -> Result<Self> {
        let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
        let (node, address) = if wire == "tcp" {
            let listener = TcpListener::bind(loopback).await?;
            let address = listener.local_addr()?;
            if grpc {
                let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
                tokio::spawn(Server::builder().serve_with_incoming(EchoService, incoming));
            } else {
                let listener = listener.tap_io(|stream| stream.set_nodelay(true).unwrap_or_default());
                tokio::spawn(async { axum::serve(listener, router()).await });
            }
            (None, address)
        } else {
            let node = Node::open(wire)?;
            let listener = RdmaListener::bind_on(&node, loopback)?;
            let address = listener.local_addr()?;
            if grpc {
                tokio::spawn(Server::builder().serve_with_incoming(EchoService, listener.incoming()));
            } else {
                tokio::spawn(async { axum::serve(listener, router()).await });
            }
            (Some(node), address)
        };
        Ok(Service {
            grpc,
            wire,
            node,
            address,
        })
    }

    async fn client(&self) -> Result<Client> {
        let address = self.address;
        Ok(match (&self.node, self.grpc) {
            (None, false) => Client::Http(HttpClient::new(tcp(address).await?).await?),
            (None, true) => Client::Grpc(EchoClient::new(move || tcp(address)).await?),
            (Some(node), false) => {
                Client::Http(HttpClient::new(RdmaStream::connect_on(node, address).await?).await?)
            }
            (Some(node), true) => {
                let node = node.clone();
                let connect = move || {
                    let node = node.clone();
                    async move { RdmaStream::connect_on(&node, address).await }
                };
                Client::Grpc(EchoClient::new(connect).await?)
            }
        })
    }

    /// Latencies of requests that several clients make for `slice`.
    async fn measure(&self, size: usize, slice: Duration) -> Result<Vec<Duration>> {
        let body = Bytes::from(vec![7; size]);
        let mut clients = Vec::new();
        for _ in 0..CLIENTS {
            let mut client = self.client().await?;
            client.echo(body.clone()).await?;
            clients.push(client);
        }
        let end = Instant::now() + slice;
        let mut running = JoinSet::new();
        for mut client in clients {
            let body = body.clone();
            running.spawn(async move {
                let mut latencies = Vec::new();
                loop {
                    let start = Instant::now();
                    if start >= end {
                        return Ok(latencies);
                    }
                    client.echo(body.clone()).await?;
                    latencies.push(start.elapsed());
                }
            });
        }
        let mut latencies = Vec::new();
        while let Some(client) = running.join_next().await {
            let of_one: Result<Vec<Duration>> = client?;
            latencies.extend(of_one?);
        }
        match latencies.is_empty() {
            true => Err(anyhow!("not one request was answered in {slice:?}")),
            false => Ok(latencies),
        }
    }
}

impl Client {
    async fn echo(&mut self, body: Bytes) -> Result<()> {
        let len = body.len();
        let echo = match self {
            Client::Http(client) => client.echo(body).await?,
            Client::Grpc(client) => client.echo(body).await?,
        };
        anyhow::ensure!(echo.len() == len, "the echo is cut off");
        Ok(())
    }
}

/// As servers and clients of TCP do it that care for latency.
async fn tcp(address: SocketAddr) -> std::io::Result<TcpStream> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}
