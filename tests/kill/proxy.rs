//! The proxy in front of the server. It reads the statements of the worker, and kills the worker at one of them: before
//! the statement reaches the server, or after the server has carried it out and before its answer gets back.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::process::Child;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};

/// The address of the server.
#[derive(Clone, Debug)]
pub(crate) enum Target {
    Socket(PathBuf),
    Host(String, u16),
}

/// When a worker is killed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Point {
    pub(crate) statement: String,
    /// The number of executions of the statement by then, this one included.
    pub(crate) execution: usize,
    pub(crate) moment: Moment,
}

/// The side of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Moment {
    /// The server does not get it.
    Before,
    /// The server has carried it out, and its answer is lost.
    After,
}

impl fmt::Display for Point {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let moment = match self.moment {
            Moment::Before => "before",
            Moment::After => "after",
        };
        write!(to, "{moment} execution {} of {}", self.execution, self.statement)
    }
}

/// Listens on a port of this machine. Ends when it is dropped.
pub(crate) struct Proxy {
    port: u16,
    shared: Arc<Shared>,
    listener: AbortHandle,
}

struct Shared {
    target: Target,
    plan: Mutex<Plan>,
    /// Whether the worker that was last armed is dead.
    killed: watch::Sender<bool>,
}

#[derive(Default)]
struct Plan {
    victim: Option<Child>,
    point: Option<Point>,
    /// The executions of each statement since the last arming.
    executed: BTreeMap<String, usize>,
    is_counting: bool,
    connections: JoinSet<()>,
}

/// What becomes of a statement.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Passes,
    DiesBefore,
    DiesAfter,
}

impl Proxy {
    pub(crate) async fn start(target: Target) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let port = listener.local_addr()?.port();
        let shared = Arc::new(Shared { target, plan: Mutex::default(), killed: watch::Sender::new(false) });
        let listener = tokio::spawn(accept(listener, Arc::clone(&shared))).abort_handle();
        Ok(Self { port, shared, listener })
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// From now on statements are those of this worker.
    pub(crate) fn serve(&self, worker: Child) {
        self.shared.killed.send_replace(false);
        self.shared.plan().victim = Some(worker);
    }

    /// Counts statements from now on, and kills the worker at this point of them, if one is given.
    pub(crate) fn arm(&self, point: Option<Point>) {
        let mut plan = self.shared.plan();
        plan.executed.clear();
        plan.is_counting = true;
        plan.point = point;
    }

    /// The executions of each statement since the last arming, which ends with this.
    pub(crate) fn disarm(&self) -> BTreeMap<String, usize> {
        self.pause();
        std::mem::take(&mut self.shared.plan().executed)
    }

    /// Counts no more. The executions so far are kept.
    pub(crate) fn pause(&self) {
        let mut plan = self.shared.plan();
        plan.point = None;
        plan.is_counting = false;
    }

    /// Waits until the worker was killed.
    pub(crate) async fn killed(&self) {
        let mut killed = self.shared.killed.subscribe();
        // The sender lives as long as this.
        let _ = killed.wait_for(|killed| *killed).await;
    }

    pub(crate) fn is_killed(&self) -> bool {
        *self.shared.killed.borrow()
    }

    /// Buries the worker, dead or alive: afterwards neither it nor a connection of it exists.
    pub(crate) async fn bury(&self) -> io::Result<()> {
        let (victim, mut connections) = {
            let mut plan = self.shared.plan();
            (plan.victim.take(), std::mem::take(&mut plan.connections))
        };
        if let Some(mut victim) = victim {
            victim.kill()?;
            tokio::task::spawn_blocking(move || victim.wait()).await.map_err(io::Error::other)??;
        }
        connections.shutdown().await;
        Ok(())
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.listener.abort();
        let mut plan = self.shared.plan();
        plan.connections.abort_all();
        if let Some(victim) = &mut plan.victim {
            let _ = victim.kill();
            let _ = victim.wait();
        }
    }
}

impl Shared {
    fn plan(&self) -> MutexGuard<'_, Plan> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts an execution, and says what becomes of it.
    fn fate(&self, statement: &str) -> Fate {
        let mut plan = self.plan();
        if !plan.is_counting {
            return Fate::Passes;
        }
        let executed = plan.executed.entry(statement.to_owned()).or_default();
        *executed += 1;
        let execution = *executed;
        match &plan.point {
            Some(point) if point.statement == statement && point.execution == execution => match point.moment
            {
                Moment::Before => Fate::DiesBefore,
                Moment::After => Fate::DiesAfter,
            },
            _ => Fate::Passes,
        }
    }

    /// Kills the worker by SIGKILL.
    fn kill(&self) -> io::Result<()> {
        // First, so that the end of the worker is known to be our doing.
        self.killed.send_replace(true);
        let mut plan = self.plan();
        plan.is_counting = false;
        plan.point = None;
        if let Some(victim) = &mut plan.victim {
            victim.kill()?;
        }
        Ok(())
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    loop {
        // The error may be temporary, for example without free file descriptors: the next attempt may succeed.
        let Ok((client, _)) = listener.accept().await else { continue };
        let passing = Arc::clone(&shared);
        shared.plan().connections.spawn(async move {
            // Both sides notice the end in any case, because their connections are closed.
            let _ = pass_on(client, &passing).await;
        });
    }
}

async fn pass_on(client: TcpStream, shared: &Shared) -> io::Result<()> {
    client.set_nodelay(true)?;
    match &shared.target {
        Target::Socket(path) => between(client, UnixStream::connect(path).await?, shared).await,
        Target::Host(host, port) => {
            let server = TcpStream::connect((host.as_str(), *port)).await?;
            server.set_nodelay(true)?;
            between(client, server, shared).await
        }
    }
}

/// Passes messages on until either side is gone.
async fn between<S>(client: TcpStream, server: S, shared: &Shared) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite,
{
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = tokio::io::split(server);
    let lethal = watch::Sender::new(None);
    tokio::select! {
        ended = requests(BufReader::new(from_client), to_server, shared, &lethal) => ended,
        ended = answers(BufReader::new(from_server), to_client, shared, lethal.subscribe()) => ended,
    }
}

/// One message of the protocol, as it came.
struct Message {
    kind: u8,
    bytes: Vec<u8>,
}

impl Message {
    /// The content behind the kind and the length.
    fn content(&self) -> &[u8] {
        &self.bytes[5..]
    }

    async fn read(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Self> {
        let kind = from.read_u8().await?;
        let mut bytes = vec![kind];
        rest(from, &mut bytes).await?;
        Ok(Self { kind, bytes })
    }
}

/// Reads a length, which counts itself, and as much as it says.
async fn rest(from: &mut (impl AsyncRead + Unpin), to: &mut Vec<u8>) -> io::Result<()> {
    let length = from.read_u32().await?;
    to.extend(length.to_be_bytes());
    let content = length.checked_sub(4).ok_or(io::ErrorKind::InvalidData)?;
    let begin = to.len();
    to.resize(begin + usize::try_from(content).map_err(io::Error::other)?, 0);
    from.read_exact(&mut to[begin..]).await?;
    Ok(())
}

/// Passes on what the worker sends, statement by statement: a message that the server answers at once, or several up to
/// the next `Sync`. `lethal` is the number of the answer at which the worker dies.
async fn requests(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    shared: &Shared,
    lethal: &watch::Sender<Option<usize>>,
) -> io::Result<()> {
    // The first message has no kind. A worker asks for no encryption.
    let mut startup = vec![];
    rest(&mut from, &mut startup).await?;
    to.write_all(&startup).await?;
    let mut statements = Statements::default();
    // The server says once after the login that it is ready.
    let mut answers = 1;
    let mut batch = vec![];
    loop {
        let message = Message::read(&mut from).await?;
        batch.extend(&message.bytes);
        let ends = statements.note(&message);
        if !ends {
            if message.kind == b'p' || message.kind == b'H' || message.kind == b'X' {
                to.write_all(&std::mem::take(&mut batch)).await?;
            }
            continue;
        }
        answers += 1;
        let fate = statements.take_executed().map_or(Fate::Passes, |executed| shared.fate(&executed));
        match fate {
            Fate::Passes => {}
            Fate::DiesBefore => return shared.kill(),
            Fate::DiesAfter => {
                lethal.send_replace(Some(answers));
            }
        }
        to.write_all(&std::mem::take(&mut batch)).await?;
    }
}

/// The prepared statements of a connection, and those that the batch at hand executes.
#[derive(Default)]
struct Statements {
    prepared: HashMap<Vec<u8>, String>,
    bound: HashMap<Vec<u8>, Vec<u8>>,
    executed: Vec<String>,
}

impl Statements {
    /// Notes a message, and says whether it ends a batch.
    fn note(&mut self, message: &Message) -> bool {
        let mut texts = message.content().split(|byte| *byte == 0);
        let mut text = || texts.next().unwrap_or_default().to_vec();
        match message.kind {
            b'Q' => self.executed.push(short(&text())),
            b'P' => {
                let (name, sql) = (text(), text());
                self.prepared.insert(name, short(&sql));
            }
            b'B' => {
                let (portal, name) = (text(), text());
                self.bound.insert(portal, name);
            }
            b'E' => {
                let name = self.bound.get(&text());
                let statement = name.and_then(|name| self.prepared.get(name));
                self.executed.extend(statement.cloned());
            }
            _ => {}
        }
        matches!(message.kind, b'Q' | b'S')
    }

    /// The statements of the batch, if it has any: a batch that only prepares changes nothing.
    fn take_executed(&mut self) -> Option<String> {
        let executed = std::mem::take(&mut self.executed);
        (!executed.is_empty()).then(|| executed.join("; "))
    }
}

/// The text in one line, without comments. Long enough to tell statements from each other.
fn short(sql: &[u8]) -> String {
    const LENGTH: usize = 160;
    let text = String::from_utf8_lossy(sql);
    let code = text.lines().map(|line| line.split("--").next().unwrap_or_default());
    let words: Vec<_> = code.flat_map(str::split_whitespace).collect();
    words.join(" ").chars().take(LENGTH).collect()
}

/// Passes on what the server sends, up to the lethal answer.
async fn answers(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    shared: &Shared,
    lethal: watch::Receiver<Option<usize>>,
) -> io::Result<()> {
    let mut answers = 0;
    loop {
        let message = Message::read(&mut from).await?;
        if message.kind == b'Z' {
            answers += 1;
        }
        // It was set before the server could answer.
        let lethal = *lethal.borrow();
        match lethal {
            Some(lethal) if answers >= lethal => return shared.kill(),
            // A part of the lethal answer would tell the worker what has happened.
            Some(_) => {}
            None => to.write_all(&message.bytes).await?,
        }
    }
}
