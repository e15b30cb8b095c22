//! HTTP and gRPC over TCP, RoCE and iWARP on loopback: requests per second and latencies, one table in Markdown.
//!
//! `cargo run --release -p nonic-web-examples --example web_bench [SECONDS] [WIRE]`; each cell takes so many seconds, one by default,
//! in rounds that alternate between the wires so that all see the same machine. With a wire, only that one. Servers are processes of
//! their own (`web_bench serve http|grpc WIRE`), which end when their input does.

use anyhow::{Context, Result, anyhow};
use axum::serve::ListenerExt;
use bytes::Bytes;
use nonic_stream::{Node, RdmaListener, RdmaStream};
use nonic_web_examples::grpc::{EchoClient, EchoService};
use nonic_web_examples::http::{HttpClient, router};
use std::net::SocketAddr;
use std::process::Stdio;
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};
use tokio::task::JoinSet;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;

const SIZES: [usize; 3] = [64, 4 << 10, 64 << 10];
const WIRES: [&str; 3] = ["tcp", "roce_lo", "iwarp_lo"];
const ROUNDS: u32 = 4;
/// Connections at a time, each with one request at a time.
const CLIENTS: usize = 4;

/// What is measured: a service on a wire, in a process of its own.
struct Service {
    grpc: bool,
    wire: &'static str,
    /// The device, if it is not TCP.
    node: Option<Node>,
    address: SocketAddr,
    /// Ends when it is dropped.
    _server: Child,
}

enum Client {
    Http(HttpClient),
    Grpc(EchoClient),
}

#[tokio::main]
async fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["serve", service, wire] => serve(service == "grpc", wire).await,
        [] => measure(1.0, None).await,
        [seconds] => measure(seconds.parse()?, None).await,
        [seconds, wire] => measure(seconds.parse()?, Some(wire)).await,
        _ => Err(anyhow!(
            "what is wanted? [SECONDS] [WIRE], or serve http|grpc WIRE"
        )),
    }
}

/// Measures all services and sizes, on all wires or on one.
async fn measure(seconds: f64, only: Option<&str>) -> Result<()> {
    let slice = Duration::from_secs_f64(seconds) / ROUNDS;
    println!("| service | bytes each way | wire | requests/s | P50 µs | P99 µs |");
    println!("|---|---|---|---|---|---|");
    for grpc in [false, true] {
        let mut services = Vec::new();
        for wire in WIRES {
            if only.is_none_or(|only| only == wire) {
                services.push(Service::start(grpc, wire).await?);
            }
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

/// Serves until the input ends, and says where.
async fn serve(grpc: bool, wire: &str) -> Result<()> {
    let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
    let address = if wire == "tcp" {
        let listener = TcpListener::bind(loopback).await?;
        let address = listener.local_addr()?;
        if grpc {
            let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
            tokio::spawn(Server::builder().serve_with_incoming(EchoService, incoming));
        } else {
            let listener = listener.tap_io(|stream| stream.set_nodelay(true).unwrap_or_default());
            tokio::spawn(async { axum::serve(listener, router()).await });
        }
        address
    } else {
        let listener = RdmaListener::bind_on(&Node::open(wire)?, loopback)?;
        let address = listener.local_addr()?;
        if grpc {
            tokio::spawn(Server::builder().serve_with_incoming(EchoService, listener.incoming()));
        } else {
            tokio::spawn(async { axum::serve(listener, router()).await });
        }
        address
    };
    println!("{address}");
    tokio::io::copy(&mut tokio::io::stdin(), &mut tokio::io::sink()).await?;
    Ok(())
}

impl Service {
    async fn start(grpc: bool, wire: &'static str) -> Result<Self> {
        let service = if grpc { "grpc" } else { "http" };
        let mut server = Command::new(std::env::current_exe()?)
            .args(["serve", service, wire])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let output = server.stdout.take().context("it was asked for")?;
        let line = BufReader::new(output).lines().next_line().await?;
        Ok(Service {
            grpc,
            wire,
            node: if wire == "tcp" {
                None
            } else {
                Some(Node::open(wire)?)
            },
            address: line.context("the server did not start")?.parse()?,
            _server: server,
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
