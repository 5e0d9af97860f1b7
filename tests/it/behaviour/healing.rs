//! Connections that were cut while a program was idle, and servers that were away for a while.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions, PgSslMode};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::Mutex;
use tokio::task::JoinSet;

use super::*;
use crate::support::{Database, eventually};

handler! {
    IdleHandler: "idle-handler" on Root;
    step "0" zero => done();
}

const NAME: &str = "idle-client";
const CONNECTED: &str =
    "SELECT count(*) FROM pg_stat_activity WHERE application_name IN ('idle-client', 'idle-client/scoop')
                         AND datname = current_database()";

/// Connections that the test can distinguish from its own.
async fn pool(options: PgConnectOptions) -> Result<PgPool> {
    let pool = PgPoolOptions::new().min_connections(6).max_connections(6).test_before_acquire(false);
    Ok(pool.connect_with(options.application_name(NAME)).await?)
}

/// A client with all its connections open and idle.
async fn idle_client(db: &Database, retry_for: Duration) -> Result<Scoop> {
    let pool = pool((*db.pool().connect_options()).clone()).await?;
    let client = Scoop::builder().postgres(pool).retry_for(retry_for).client().await?;
    connect_all(db, &client, 8).await?;
    Ok(client)
}

/// Makes a program use so many connections, its own among them.
async fn connect_all(db: &Database, program: &Scoop, connections: i64) -> Result<()> {
    let begin = Instant::now();
    while db.number(CONNECTED).await < connections {
        assert!(begin.elapsed() < Duration::from_secs(20), "it does not connect");
        let looks = futures_util::future::join_all(
            (0..16).map(|_| program.operate().handlers().list().into_future()),
        )
        .await;
        looks.into_iter().collect::<Result<Vec<_>, _>>()?;
    }
    Ok(())
}

/// Ends the sessions of the program.
async fn cut(db: &Database) {
    assert!(end_sessions(db).await >= 5);
}

/// Ends the present sessions of the program, and returns their number. The program may open new
/// ones at once.
async fn end_sessions(db: &Database) -> i64 {
    let now = db.number("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint").await;
    let older = format!("{CONNECTED} AND backend_start <= to_timestamp({now} / 1000000.0)");
    let ended = db.number(&older.replace("count(*)", "count(pg_terminate_backend(pid))")).await;
    eventually("all sessions have ended", async || db.number(&older).await == 0).await;
    ended
}

/// Nothing else is done between the cut and the operation.
#[tokio::test(flavor = "multi_thread")]
async fn cut_connections_of_an_idle_client_fail_no_operation() -> Result<()> {
    let db = Database::new().await;
    let scoop = db.start((IdleHandler,)).await?;
    let client = idle_client(&db, Duration::from_secs(20)).await?;
    let hour = Duration::from_secs(3600);

    cut(&db).await;
    let root = client.launch(Root).deadline(hour).await?;
    cut_again(&db, &client).await?;
    assert_eq!(root.ends().await?, Outcome::Committed);
    cut_again(&db, &client).await?;
    assert_eq!(root.tree().await?.runs().len(), 1);
    cut_again(&db, &client).await?;
    assert_eq!(root.status().await?, scoop::Status::Ended(Outcome::Committed));
    cut_again(&db, &client).await?;
    assert_eq!(client.find(root.id()).await?.message_id(), root.message_id());
    cut_again(&db, &client).await?;
    assert_eq!(client.rollback(root.id(), "it is not wanted").await?, RollbackAnswer::Accepted);
    assert!(matches!(root.ends().await?, Outcome::RolledBack(_)));

    cut_again(&db, &client).await?;
    let later = client.launch(Root).delay(hour).await?;
    cut_again(&db, &client).await?;
    assert_eq!(client.cancel(later.id(), "it is not wanted").await?, CancelAnswer::Accepted);
    assert!(matches!(later.ends().await?, Outcome::RolledBack(_)));
    cut_again(&db, &client).await?;
    assert_eq!(client.launch_all([Root, Root]).await?.len(), 2);
    cut_again(&db, &client).await?;
    client.launch(Root).unique("one").await?;
    cut_again(&db, &client).await?;
    assert!(client.operate().handlers().retire("root-topic", "idle-handler").await?.was_registered);
    scoop.shutdown().await?;
    assert_eq!(db.number("SELECT count(*) FROM scoop.message").await, 5);
    Ok(())
}

async fn cut_again(db: &Database, client: &Scoop) -> Result<()> {
    connect_all(db, client, 2).await?;
    end_sessions(db).await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn cut_connections_of_an_idle_process_with_sagas_fail_no_launch() -> Result<()> {
    let db = Database::new().await;
    // Steps detect their dead connections themselves.
    let options = (*db.pool().connect_options()).clone().application_name(NAME);
    let pool = PgPoolOptions::new().max_connections(6).connect_with(options).await?;
    let scoop = Scoop::builder().postgres(pool).only::<IdleHandler>().start().await?;
    connect_all(&db, &scoop, 5).await?;
    cut(&db).await;
    let root = scoop.launch(Root).deadline(Duration::from_secs(3600)).await?;
    assert_eq!(root.ends().await?, Outcome::Committed);
    assert_eq!(db.number("SELECT count(*) FROM scoop.message").await, 1);
    Ok(())
}

/// A way to the server that can be closed.
struct Way {
    port: u16,
    options: PgConnectOptions,
    open: Arc<Mutex<Option<JoinSet<()>>>>,
}

impl Way {
    async fn to(db: &Database) -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let port = listener.local_addr()?.port();
        let options = (*db.pool().connect_options()).clone();
        let way = Self { port, options, open: Arc::default() };
        way.open_with(listener).await;
        Ok(way)
    }

    async fn open_with(&self, listener: TcpListener) {
        let options = self.options.clone();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut ways = JoinSet::new();
            while let Ok((program, _)) = listener.accept().await {
                ways.spawn(forward(program, options.clone()));
            }
        });
        *self.open.lock().await = Some(tasks);
    }

    /// All connections break, and there are no others.
    async fn close(&self) {
        if let Some(mut tasks) = self.open.lock().await.take() {
            tasks.shutdown().await;
        }
    }

    async fn open(&self) -> Result<()> {
        let listener = loop {
            match TcpListener::bind(("127.0.0.1", self.port)).await {
                Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => tokio::task::yield_now().await,
                listener => break listener?,
            }
        };
        self.open_with(listener).await;
        Ok(())
    }

    fn through(&self) -> PgConnectOptions {
        let (user, database) = (self.options.get_username(), self.options.get_database().unwrap_or_default());
        let options = PgConnectOptions::new_without_pgpass().host("127.0.0.1").port(self.port);
        options.username(user).database(database).ssl_mode(PgSslMode::Disable)
    }
}

async fn forward(mut program: TcpStream, options: PgConnectOptions) {
    let (host, port) = (options.get_host().to_owned(), options.get_port());
    let folder = options.get_socket().cloned();
    let folder = folder.or_else(|| host.starts_with('/').then(|| PathBuf::from(&host)));
    match folder {
        Some(folder) => {
            if let Ok(mut server) = UnixStream::connect(folder.join(format!(".s.PGSQL.{port}"))).await {
                let _ = tokio::io::copy_bidirectional(&mut program, &mut server).await;
            }
        }
        None => {
            if let Ok(mut server) = TcpStream::connect((&*host, port)).await {
                let _ = tokio::io::copy_bidirectional(&mut program, &mut server).await;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_away_for_longer_than_the_patience_is_an_error_that_names_the_setting() -> Result<()> {
    let db = Database::new().await;
    let way = Way::to(&db).await?;
    let retry_for = Duration::from_millis(1_500);
    let client = Scoop::builder().postgres(pool(way.through()).await?).retry_for(retry_for).client().await?;
    let root = client.launch(Root).await?;
    way.close().await;
    let begin = Instant::now();
    let (launched, tree) = tokio::join!(client.launch(Root), root.tree().into_future());
    assert!(begin.elapsed() >= retry_for, "{:?}", begin.elapsed());
    for error in [launched.err(), tree.err()] {
        let Some(error) = error else { panic!("it succeeded") };
        assert!(error.is_unavailable() && !error.is_busy(), "{error:?}");
        let shown = error.to_string();
        let (attempts, waited) = shown.split_once(" failed within ").expect("it names the time");
        let (waited, named) = waited.split_once("s, where ").expect("it names the setting");
        assert!(named.starts_with(&format!("`Builder::retry_for` allows {retry_for:?} ")), "{shown}");
        // It is rounded to a tenth of a second.
        let (waited, elapsed) = (waited.parse::<f64>()?, begin.elapsed().as_secs_f64());
        assert!(waited >= retry_for.as_secs_f64() && waited < elapsed + 0.05, "{shown} {elapsed}");
        let attempts = attempts.strip_suffix(" attempts").or(attempts.strip_suffix(" attempt"));
        let (_, attempts) = attempts.and_then(|it| it.rsplit_once(": ")).expect("it names the attempts");
        assert!(attempts.parse::<u32>()? > 0, "{shown}");
        assert!(shown.contains("Builder::retry_for") && shown.contains("1.5s"), "{shown}");
        assert!(shown.contains("launched") || shown.contains("looked up"), "{shown}");
        assert!(error.is_transient());
    }
    way.open().await?;
    assert_eq!(client.launch(Root).await?.ends().await?, Outcome::NoHandlers);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_returns_within_the_patience_fails_no_operation() -> Result<()> {
    let db = Database::new().await;
    let way = Way::to(&db).await?;
    let client = Scoop::builder().postgres(pool(way.through()).await?).client().await?;
    let root = client.launch(Root).await?;
    way.close().await;
    let returns = async {
        tokio::time::sleep(Duration::from_millis(700)).await;
        way.open().await
    };
    let deadline = Duration::from_secs(3600);
    let (launched, many, tree, ended, returned) = tokio::join!(
        client.launch(Root).deadline(deadline).into_future(),
        futures_util::future::join_all((0..20).map(|_| client.launch(Root).into_future())),
        root.tree().into_future(),
        root.wait(),
        returns,
    );
    returned?;
    tree?;
    assert_eq!(ended?, Outcome::NoHandlers);
    assert_eq!(launched?.ends().await?, Outcome::NoHandlers);
    many.into_iter().collect::<Result<Vec<_>, _>>()?;
    assert_eq!(db.number("SELECT count(*) FROM scoop.message").await, 22);
    assert_eq!(db.number("SELECT count(*) FROM scoop.message_event WHERE type = 'EMITTED'").await, 22);
    Ok(())
}

/// Without a connection, no answer can be lost.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_never_had_a_connection_knows_that_nothing_was_done() -> Result<()> {
    let db = Database::new().await;
    let way = Way::to(&db).await?;
    way.close().await;
    let pool = PgPoolOptions::new().connect_lazy_with(way.through());
    let client = Scoop::builder().postgres(pool).retry_for(Duration::from_millis(200)).client().await;
    let Err(error) = client else { panic!("there is no way to the server") };
    assert!(error.is_unavailable() && !error.is_busy(), "{error:?}");
    assert!(error.is_transient() && !error.may_have_happened(), "{error:?}");
    assert!(error.to_string().contains("nothing was done"), "{error}");
    Ok(())
}
