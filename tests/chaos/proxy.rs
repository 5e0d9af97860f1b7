//! The proxy in front of the server: its connections can be cut, held up, slowed down, and led elsewhere.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::watch;
use tokio::task::AbortHandle;

use crate::dice::Dice;

/// The address of the server.
#[derive(Clone, Debug)]
pub(crate) enum Target {
    Socket(PathBuf),
    Host(String, u16),
}

/// How messages pass through a connection.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Pace {
    Free,
    /// Each piece is delayed by this time.
    Slow(Duration),
    /// Answers of the server do not get through, for the time being.
    Mute,
    /// Nothing gets through, for the time being.
    Held,
}

/// Listens on a port of this machine, and passes on all bytes. Ends when it is dropped.
pub(crate) struct Proxy {
    port: u16,
    shared: Arc<Shared>,
    listener: AbortHandle,
}

struct Shared {
    target: Mutex<Target>,
    connections: Mutex<BTreeMap<u64, Connection>>,
}

struct Connection {
    pace: watch::Sender<Pace>,
    task: AbortHandle,
}

impl Proxy {
    pub(crate) async fn start(target: Target) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let port = listener.local_addr()?.port();
        let shared = Arc::new(Shared { target: Mutex::new(target), connections: Mutex::default() });
        let listener = tokio::spawn(accept(listener, Arc::clone(&shared))).abort_handle();
        Ok(Self { port, shared, listener })
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Leads new connections to this server, and cuts all others.
    pub(crate) fn lead_to(&self, target: Target) {
        *lock(&self.shared.target) = target;
        self.keep(|_| false);
    }

    /// Cuts so many percent of the connections.
    pub(crate) fn cut(&self, dice: &mut Dice, percent: usize) {
        self.keep(|_| !dice.percent(percent));
    }

    /// Sets the pace of so many percent of the connections.
    pub(crate) fn set_pace(&self, dice: &mut Dice, percent: usize, pace: Pace) {
        for connection in lock(&self.shared.connections).values().filter(|_| dice.percent(percent)) {
            connection.pace.send_replace(pace);
        }
    }

    /// Cuts the connections with answers that do not get through.
    pub(crate) fn cut_the_mute(&self) {
        self.keep(|connection| *connection.pace.borrow() != Pace::Mute);
    }

    /// Cuts the other connections.
    fn keep(&self, mut stays: impl FnMut(&Connection) -> bool) {
        lock(&self.shared.connections).retain(|_, connection| {
            let stays = stays(connection);
            if !stays {
                connection.task.abort();
            }
            stays
        });
    }

    /// Lets everything through again.
    pub(crate) fn free(&self) {
        for connection in lock(&self.shared.connections).values() {
            connection.pace.send_replace(Pace::Free);
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.listener.abort();
        for connection in lock(&self.shared.connections).values() {
            connection.task.abort();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    for id in 0.. {
        // The error may be temporary, for example without free file descriptors: the next attempt may succeed.
        let Ok((client, _)) = listener.accept().await else { continue };
        let (pace, paced) = watch::channel(Pace::Free);
        let mut connections = lock(&shared.connections);
        let passing = Arc::clone(&shared);
        let task = tokio::spawn(async move {
            // Both sides notice the end in any case, because their connections are closed.
            let _ = pass_on(client, &passing, paced).await;
            lock(&passing.connections).remove(&id);
        });
        connections.insert(id, Connection { pace, task: task.abort_handle() });
    }
}

async fn pass_on(client: TcpStream, shared: &Shared, pace: watch::Receiver<Pace>) -> io::Result<()> {
    client.set_nodelay(true)?;
    let target = lock(&shared.target).clone();
    match target {
        Target::Socket(path) => between(client, UnixStream::connect(path).await?, pace).await,
        Target::Host(host, port) => {
            let server = TcpStream::connect((host, port)).await?;
            server.set_nodelay(true)?;
            between(client, server, pace).await
        }
    }
}

/// Passes bytes on until either side is gone.
async fn between<S>(client: TcpStream, server: S, pace: watch::Receiver<Pace>) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite,
{
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = tokio::io::split(server);
    let asked = pump(from_client, to_server, pace.clone(), &[Pace::Held]);
    let answered = pump(from_server, to_client, pace, &[Pace::Held, Pace::Mute]);
    tokio::select! {
        ended = asked => ended,
        ended = answered => ended,
    }
}

async fn pump(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut pace: watch::Receiver<Pace>,
    barred: &[Pace],
) -> io::Result<()> {
    let mut piece = vec![0; 32 * 1024];
    loop {
        let bytes = from.read(&mut piece).await?;
        if bytes == 0 {
            return Ok(());
        }
        let now = pace.wait_for(|pace| !barred.contains(pace)).await.map(|pace| *pace);
        if let Ok(Pace::Slow(later)) = now {
            tokio::time::sleep(later).await;
        }
        to.write_all(&piece[..bytes]).await?;
    }
}
