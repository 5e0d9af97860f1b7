//! One PostgreSQL for the whole test binary, and a runtime of its own that creates and drops
//! databases there: the runtime of a test ends with the test, this one with the process.

use std::future::Future;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock, Weak};

use scoop::embedded::Embedded;
use scoop::prelude::*;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{AssertSqlSafe, PgPool};
use tokio::runtime::Runtime;
use tokio::sync::{Mutex, mpsc};

/// The prefix of all our databases, by which those of a killed test run are found.
const PREFIX: &str = "scoop_it";

/// Started by the first test, and never dropped: the private PostgreSQL notices the end of the
/// process.
static SERVER: LazyLock<Server> = LazyLock::new(Server::start);

/// The databases that are made ahead on a private server, so that no test waits for one.
const AHEAD: usize = 4;

/// The migrated database that all others are copies of. It lives as long as any of them, so that
/// the last test drops it.
static TEMPLATE: Mutex<Weak<Named>> = Mutex::const_new(Weak::new());

struct Server {
    runtime: Runtime,
    admin: PgPool,
    options: PgConnectOptions,
    /// Random, since pids of several machines may meet on one server. While this process lives,
    /// it holds the advisory lock of that number.
    tag: u32,
    databases: AtomicU32,
    private: Option<Private>,
}

/// A server of this process alone: its databases end with the process, and need not be dropped before.
struct Private {
    _embedded: Embedded,
    ahead: Mutex<mpsc::Receiver<Arc<Named>>>,
}

/// A database that is dropped with this.
pub(crate) struct Named {
    name: String,
    /// A copy keeps its template.
    _template: Option<Arc<Named>>,
}

impl Named {
    /// A fresh database with all the tables.
    pub(crate) async fn create() -> Arc<Self> {
        match &SERVER.private {
            Some(private) => private.ahead.lock().await.recv().await.expect("databases can be made"),
            None => on_server(async { Self::copy(template().await).await }).await,
        }
    }

    async fn copy(template: Arc<Self>) -> Arc<Self> {
        let name = SERVER.next_name();
        // On a private server the checkpoints around a copy of files write nothing to a disk.
        let strategy = if SERVER.private.is_some() { "file_copy" } else { "wal_log" };
        SERVER
            .execute(format!("CREATE DATABASE {name} TEMPLATE {} STRATEGY {strategy}", template.name))
            .await;
        Arc::new(Self { name, _template: Some(template) })
    }

    /// Makes databases ahead, until the process ends.
    async fn copy_ahead(ahead: mpsc::Sender<Arc<Self>>) {
        let template = template().await;
        while ahead.send(Self::copy(template.clone()).await).await.is_ok() {}
    }

    /// How to connect to it.
    pub(crate) fn options(&self) -> PgConnectOptions {
        SERVER.options.clone().database(&self.name)
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        let name = std::mem::take(&mut self.name);
        let (done, dropped) = std::sync::mpsc::channel();
        SERVER.runtime.spawn(async move {
            SERVER.execute(format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)")).await;
            let _ = done.send(());
        });
        if SERVER.private.is_some() {
            return;
        }
        // The template is dropped by the server's own thread, which must not wait for itself.
        if tokio::runtime::Handle::try_current().is_ok_and(|here| here.id() == SERVER.runtime.handle().id()) {
            return;
        }
        let _ = dropped.recv();
    }
}

/// The template, made if there is none.
async fn template() -> Arc<Named> {
    let mut known = TEMPLATE.lock().await;
    if let Some(template) = known.upgrade() {
        return template;
    }
    let template = Named { name: SERVER.next_name(), _template: None };
    SERVER.execute(format!("CREATE DATABASE {}", template.name)).await;
    migrate(&template).await;
    let template = Arc::new(template);
    *known = Arc::downgrade(&template);
    template
}

/// Creates the tables: the first start in a database does so, and there is no other way.
async fn migrate(database: &Named) {
    let pool = PgPoolOptions::new().max_connections(scoop::Builder::required_connections());
    let pool = pool.connect_with(database.options()).await.expect("the template can be reached");
    let scoop = Scoop::builder().postgres(pool.clone()).only::<Migrator>().start().await;
    scoop.expect("the tables can be made").shutdown().await.unwrap();
    sqlx::query("DELETE FROM scoop.handler").execute(&pool).await.expect("the subscription can be deleted");
    sqlx::raw_sql(include_str!("run_rules.sql")).execute(&pool).await.expect("the rules fit the tables");
    // A database with open connections cannot be copied.
    pool.close().await;
}

#[derive(Message, Serialize, Deserialize)]
struct Nothing;

#[derive(Default)]
struct Migrator;

#[saga(name = "migrator-of-the-tests")]
#[subscribes(Nothing)]
impl Migrator {
    #[step]
    async fn nothing(&self, _: &mut Scope<'_>, _: &Nothing) -> Result<()> {
        Ok(())
    }
}

/// Runs on the server's runtime, where its connections belong.
async fn on_server<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> T {
    SERVER.runtime.spawn(work).await.expect("the task on the test database server succeeds")
}

impl Server {
    fn start() -> Self {
        // Not on the thread of a test, which belongs to a runtime already.
        std::thread::spawn(|| {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
            let runtime = runtime.expect("a runtime can be had");
            let (admin, options, tag, embedded) = runtime.block_on(connect());
            let private = embedded.map(|embedded| {
                let (made, ahead) = mpsc::channel(AHEAD);
                runtime.spawn(Named::copy_ahead(made));
                Private { _embedded: embedded, ahead: Mutex::new(ahead) }
            });
            Self { runtime, admin, options, tag, databases: AtomicU32::new(0), private }
        })
        .join()
        .expect("there is a PostgreSQL for the tests")
    }

    fn next_name(&self) -> String {
        let number = self.databases.fetch_add(1, Ordering::Relaxed);
        format!("{PREFIX}_{}_{}_{number}", self.tag, std::process::id())
    }

    async fn execute(&self, sql: String) {
        let done = sqlx::query(AssertSqlSafe(sql.clone())).execute(&self.admin).await;
        if let Err(error) = done {
            panic!("{sql}: {error}");
        }
    }
}

async fn connect() -> (PgPool, PgConnectOptions, u32, Option<Embedded>) {
    let (options, embedded) = match std::env::var("DATABASE_URL") {
        Ok(url) => (url.parse().expect("DATABASE_URL is a URL of PostgreSQL"), None),
        Err(_) => {
            let embedded = Embedded::start().await.expect("a private PostgreSQL can be started");
            (embedded.connect_options(), Some(embedded))
        }
    };
    let admin = PgPoolOptions::new().max_connections(4).connect_with(options.clone()).await;
    let admin = admin.expect("the server can be reached");
    let tag = u32::from_ne_bytes(*uuid::Uuid::new_v4().as_bytes().first_chunk().expect("16 bytes")) >> 1;
    drop_leftovers(&admin).await;
    let lock = sqlx::query("SELECT pg_advisory_lock($1)").bind(i64::from(tag));
    let mut session = admin.acquire().await.expect("a connection is free");
    lock.execute(&mut *session).await.expect("no other process has drawn this number");
    session.leak_lock();
    (admin, options, tag, embedded)
}

/// Drops the databases of killed test runs, those with a free lock of their number.
async fn drop_leftovers(admin: &PgPool) {
    let sql =
        "SELECT datname::text, split_part(datname, '_', 3)::bigint FROM pg_database WHERE datname LIKE $1";
    let found: Vec<(String, i64)> = sqlx::query_as(sql)
        .bind(format!("{PREFIX}\\_%"))
        .fetch_all(admin)
        .await
        .expect("databases are listed");
    for (name, tag) in found {
        let mut probe = admin.begin().await.expect("a connection is free");
        let dead: bool = sqlx::query_scalar("SELECT pg_try_advisory_xact_lock($1)")
            .bind(tag)
            .fetch_one(&mut *probe)
            .await
            .expect("a lock can be tried");
        drop(probe);
        if dead {
            let sql = AssertSqlSafe(format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)"));
            sqlx::query(sql).execute(admin).await.expect("a leftover can be dropped");
        }
    }
}

/// Keeps a connection, and with it the lock it holds, until the process ends.
trait LeakLock {
    fn leak_lock(self);
}

impl LeakLock for sqlx::pool::PoolConnection<sqlx::Postgres> {
    fn leak_lock(self) {
        std::mem::forget(self.leak());
    }
}
