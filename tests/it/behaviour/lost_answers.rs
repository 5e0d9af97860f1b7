//! Lost answers of the database: committed changes count nevertheless.
//!
//! The program goes through a proxy that can cut a connection at the worst moment.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sqlx::PgPool;
use sqlx::postgres::{PgPoolOptions, PgSslMode};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixListener, UnixStream};
use tokio::sync::Notify;

use super::*;
use crate::support::{Database, eventually};

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

/// How the connection of the awaited request is cut.
#[derive(Clone, Copy)]
enum Cut {
    /// The server has carried the request out, and its answer is lost.
    Answer,
    /// The program loses the connection while the server carries the request out, or at its arrival if the proxy is
    /// armed before. The server does not learn of it.
    Unnoticed,
    /// The program loses the connection at once, and the request gets to the server only when it is let go.
    Late,
}

/// Stands between a program and the server. Once armed, it cuts one connection.
#[derive(Clone)]
struct Proxy {
    request: &'static [u8],
    cut: Cut,
    armed: Arc<AtomicBool>,
    arming: Arc<Notify>,
    late: Arc<Notify>,
    folder: Arc<Folder>,
}

struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Proxy {
    /// Cuts, when armed, the connection of the next request that contains these bytes.
    fn new(request: &'static [u8], cut: Cut) -> Self {
        let name = format!("scoop-proxy-{}", uuid::Uuid::new_v4().simple());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir(&folder).expect("a folder can be made");
        Self {
            request,
            cut,
            armed: Arc::default(),
            arming: Arc::default(),
            late: Arc::default(),
            folder: Arc::new(Folder(folder)),
        }
    }

    fn arm(&self) {
        self.armed.store(true, Ordering::SeqCst);
        self.arming.notify_waiters();
    }

    /// Releases the late request.
    fn let_go(&self) {
        self.late.notify_one();
    }

    async fn has_cut(&self) {
        eventually("the connection is cut", async || !self.armed.load(Ordering::SeqCst)).await;
    }

    /// A pool of connections that go through this.
    async fn pool(&self, db: &Database) -> Result<PgPool> {
        let options = (*db.pool().connect_options()).clone();
        let (host, port) = (options.get_host().to_owned(), options.get_port());
        let socket = options.get_socket().cloned();
        let socket = socket.or_else(|| host.starts_with('/').then(|| PathBuf::from(&host)));
        let listener = UnixListener::bind(self.folder.0.join(format!(".s.PGSQL.{port}")))?;
        let proxy = self.clone();
        tokio::spawn(async move {
            while let Ok((program, _)) = listener.accept().await {
                let server: Box<dyn Stream> = match &socket {
                    Some(socket) => {
                        Box::new(UnixStream::connect(socket.join(format!(".s.PGSQL.{port}"))).await?)
                    }
                    None => Box::new(TcpStream::connect((&*host, port)).await?),
                };
                tokio::spawn(proxy.clone().forward(program, server));
            }
            std::io::Result::Ok(())
        });
        let through = options.socket(&self.folder.0).ssl_mode(PgSslMode::Disable);
        Ok(PgPoolOptions::new().max_connections(6).connect_with(through).await?)
    }

    async fn forward(self, mut program: UnixStream, mut server: Box<dyn Stream>) -> std::io::Result<()> {
        let (mut request, mut answer) = (vec![0; 1 << 16], vec![0; 1 << 16]);
        let mut is_unanswered = false;
        loop {
            let armed = self.arming.notified();
            tokio::pin!(armed);
            armed.as_mut().enable();
            if is_unanswered && matches!(self.cut, Cut::Unnoticed) && self.armed.swap(false, Ordering::SeqCst)
            {
                drop(program);
                return std::future::pending().await;
            }
            tokio::select! {
                () = armed => {}
                length = program.read(&mut request) => {
                    let request = &request[..length?];
                    if request.is_empty() {
                        return Ok(());
                    }
                    let awaited = request.windows(self.request.len()).any(|part| part == self.request);
                    let cuts = awaited
                        && !matches!(self.cut, Cut::Unnoticed)
                        && self.armed.swap(false, Ordering::SeqCst);
                    is_unanswered |= awaited;
                    if cuts && matches!(self.cut, Cut::Late) {
                        drop(program);
                        self.late.notified().await;
                        server.write_all(request).await?;
                        return server.read(&mut answer).await.map(drop);
                    }
                    server.write_all(request).await?;
                    if cuts {
                        return server.read(&mut answer).await.map(drop);
                    }
                }
                length = server.read(&mut answer) => {
                    let answer = &answer[..length?];
                    if answer.is_empty() {
                        return Ok(());
                    }
                    is_unanswered = false;
                    program.write_all(answer).await?;
                }
            }
        }
    }
}

mod of_a_commit {
    use super::*;

    handler! {
        RootHandler: "root-handler" on Root;
        step "0" zero => launches(Child);
    }

    struct ChildHandler {
        proxy: Proxy,
    }

    #[saga(name = "child-handler")]
    #[subscribes(Child)]
    impl ChildHandler {
        #[step(name = "0")]
        async fn zero(&self, scope: &mut Scope<'_>, _: &Child) -> Result<()> {
            sqlx::query("INSERT INTO effect VALUES (1)").execute(scope.tx().await?).await?;
            self.proxy.arm();
            Ok(())
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_parent_is_woken_although_the_answer_to_its_childs_commit_was_lost() -> Result<()> {
        let db = Database::new().await;
        db.execute("CREATE TABLE effect (n int)").await;
        let proxy = Proxy::new(b"COMMIT\0", Cut::Answer);
        let scoop = Scoop::builder().postgres(proxy.pool(&db).await?);
        let scoop = scoop.only::<RootHandler>().only::<ChildHandler>();
        let scoop = scoop.provide(ChildHandler { proxy: proxy.clone() }).start().await?;
        let root = scoop.launch(Root).await?;
        assert_eq!(root.ends().await?, Outcome::Committed);
        proxy.has_cut().await;
        assert_eq!(db.number("SELECT count(*) FROM effect").await, 1);
        Ok(())
    }
}

mod of_a_claim {
    use super::*;

    handler! {
        LateHandler: "late-handler" on Child;
        step "0" zero => done();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_claim_that_commits_after_its_connection_was_lost_is_found() -> Result<()> {
        let db = Database::new().await;
        // A claim contains the name of the worker. So do settlements, but those are done by then.
        let proxy = Proxy::new(b"scoop-rs:", Cut::Unnoticed);
        let scoop = Scoop::builder().postgres(proxy.pool(&db).await?).only::<LateHandler>();
        // Claims only when notified of a launch.
        let scoop = scoop.poll_interval(Duration::from_secs(3600)).start().await?;
        scoop.launch(Child).await?.ends().await?;
        let active = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
                      AND state = 'active' AND pid <> pg_backend_pid()";
        eventually("it looks for no more work", async || db.number(active).await == 0).await;

        // Holds claims up, as a process does that takes the worker for dead.
        let mut tx = db.pool().begin().await?;
        sqlx::query("SELECT FROM scoop.worker FOR UPDATE").execute(&mut *tx).await?;
        let elsewhere = Scoop::client(db.another_pool(1).await);
        let root = elsewhere.launch(Child).await?;
        let held_up = "SELECT count(*) FROM pg_stat_activity
                       WHERE datname = current_database() AND wait_event_type = 'Lock'";
        eventually("the claim is held up", async || db.number(held_up).await >= 1).await;
        // It may be an earlier look of the claimer, which does not see the launch.
        proxy.arm();
        proxy.has_cut().await;
        eventually("the claim and its reconciliation are held up", async || db.number(held_up).await >= 2)
            .await;
        tx.commit().await?;
        assert_eq!(root.ends().await?, Outcome::Committed);
        Ok(())
    }
}

mod of_a_launch {
    use super::*;

    /// Its text distinguishes one launch from everything else that is sent.
    #[derive(Message, Serialize, Deserialize)]
    #[message(topic = "lost-answers.once")]
    struct Once(String);

    fn once(which: &str) -> Once {
        Once(which.to_owned())
    }

    handler! {
        UniqueHandler: "unique-handler" on Once;
        step "0" zero => executes("INSERT INTO effect VALUES (1)");
    }

    /// The run was claimed at once, for a worker that did not learn of it.
    #[tokio::test(flavor = "multi_thread")]
    async fn run_claimed_by_a_launch_with_a_lost_answer_is_found() -> Result<()> {
        let db = Database::new().await;
        db.execute("CREATE TABLE effect (n int)").await;
        let proxy = Proxy::new(b"its answer is lost", Cut::Answer);
        let scoop = Scoop::builder().postgres(proxy.pool(&db).await?).only::<UniqueHandler>();
        // Retries are made by the test only.
        let scoop = scoop.poll_interval(Duration::from_secs(3600)).retry_for(Duration::ZERO).start().await?;
        scoop.launch(once("first")).await?.ends().await?;

        proxy.arm();
        let launched = scoop.launch(once("its answer is lost")).unique("one").await;
        assert!(matches!(&launched, Err(error) if error.is_transient()), "its answer came");
        proxy.has_cut().await;
        let again = scoop.launch(once("its answer is lost")).unique("one").await?;
        assert_eq!(again.ends().await?, Outcome::Committed);
        assert_eq!(db.number("SELECT count(*) FROM effect").await, 2);
        assert_eq!(db.history().await.count("SEEN"), 2);
        Ok(())
    }
}

mod of_a_late_launch {
    use super::*;

    /// Its text distinguishes one request from everything else that is sent.
    #[derive(Message, Serialize, Deserialize)]
    #[message(topic = "patience")]
    struct Coming(String);

    fn coming(when: &str) -> Coming {
        Coming(when.to_owned())
    }

    handler! {
        PatientHandler: "patient-handler" on Coming;
        step "0" zero => done();
    }

    /// Its outcome was looked up before the server had even read the launch.
    #[tokio::test(flavor = "multi_thread")]
    async fn run_claimed_by_a_late_launch_is_found() -> Result<()> {
        let db = Database::new().await;
        let proxy = Proxy::new(b"comes late", Cut::Late);
        let scoop = Scoop::builder().postgres(proxy.pool(&db).await?).only::<PatientHandler>();
        // Retries are made by the test only.
        let scoop = scoop.poll_interval(Duration::from_secs(3600)).retry_for(Duration::ZERO).start().await?;
        scoop.launch(coming("first")).await?.ends().await?;
        let active = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
                      AND state = 'active' AND pid <> pg_backend_pid()";
        eventually("it looks for no more work", async || db.number(active).await == 0).await;

        proxy.arm();
        let launched = scoop.launch(coming("comes late")).unique("one").await;
        assert!(matches!(&launched, Err(error) if error.is_transient()), "its answer came");
        proxy.has_cut().await;
        // A claimer reconciles first.
        let elsewhere = Scoop::client(db.another_pool(1).await);
        assert_eq!(elsewhere.launch(coming("meanwhile")).await?.ends().await?, Outcome::Committed);
        proxy.let_go();
        let launches = "SELECT count(*) FROM scoop.message";
        eventually("the launch came", async || db.number(launches).await == 3).await;
        let again = elsewhere.launch(coming("comes late")).unique("one").await?;
        assert_eq!(again.ends().await?, Outcome::Committed);
        Ok(())
    }
}

mod of_a_repeated_launch {
    use super::*;

    /// Its identifier, which distinguishes it from everything else that is sent.
    #[derive(Message, Serialize, Deserialize)]
    #[message(topic = "repeated")]
    struct Repeated(String);

    fn repeated(which: &str) -> Repeated {
        Repeated(which.to_owned())
    }

    handler! {
        RepeatedHandler: "repeated-handler" on Repeated;
        step "0" zero => executes("INSERT INTO effect VALUES (1)");
    }

    async fn database() -> Database {
        let db = Database::new().await;
        db.execute("CREATE TABLE effect (n int)").await;
        db
    }

    /// All ways to launch something in a transaction of its own.
    async fn launches_survive(db: &Database, proxy: &Proxy, program: &Scoop) -> Result<()> {
        program.launch(repeated("first")).await?.ends().await?;
        let hour = Duration::from_secs(3600);
        let before = db.number("SELECT count(*) FROM effect").await;
        proxy.arm();
        let root = program.launch(repeated("lost answer")).await?;
        proxy.has_cut().await;
        assert!(!root.may_be_of_earlier_launch(), "it has no key");
        assert_eq!(root.ends().await?, Outcome::Committed);
        proxy.arm();
        let root = program.launch(repeated("lost answer")).unique("one").await?;
        proxy.has_cut().await;
        assert!(root.may_be_of_earlier_launch() && !root.is_of_earlier_launch(), "it is not known");
        assert_eq!(root.ends().await?, Outcome::Committed);
        proxy.arm();
        let root = program.launch(repeated("lost answer")).deadline(hour).await?;
        proxy.has_cut().await;
        assert_eq!(root.ends().await?, Outcome::Committed);
        proxy.arm();
        let roots = program.launch_all([repeated("lost answer"), repeated("another")]).await?;
        proxy.has_cut().await;
        for root in &roots {
            assert_eq!(root.ends().await?, Outcome::Committed);
        }
        proxy.arm();
        let crowd = (0..5).map(|_| program.launch(repeated("lost answer")).into_future());
        let crowd = futures_util::future::join_all(crowd).await;
        proxy.has_cut().await;
        for root in crowd {
            assert_eq!(root?.ends().await?, Outcome::Committed);
        }
        assert_eq!(db.number("SELECT count(*) FROM effect").await - before, 10);
        assert_eq!(db.number("SELECT count(*) FROM scoop.message").await, 11);
        assert_eq!(db.history().await.count("SEEN"), 11);
        Ok(())
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn launch_of_a_client_with_a_lost_answer_takes_effect_once() -> Result<()> {
        let db = database().await;
        let _scoop = db.start((RepeatedHandler,)).await?;
        let proxy = Proxy::new(b"lost answer", Cut::Answer);
        let client = Scoop::builder().postgres(proxy.pool(&db).await?).client().await?;
        launches_survive(&db, &proxy, &client).await
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn launch_of_a_process_with_a_lost_answer_takes_effect_once() -> Result<()> {
        let db = database().await;
        let proxy = Proxy::new(b"lost answer", Cut::Answer);
        let scoop = Scoop::builder().postgres(proxy.pool(&db).await?);
        let scoop = scoop.only::<RepeatedHandler>().start().await?;
        launches_survive(&db, &proxy, &scoop).await
    }

    /// The first attempt gets to the server when the second has come to its end.
    #[tokio::test(flavor = "multi_thread")]
    async fn launch_with_a_late_attempt_takes_effect_once() -> Result<()> {
        let db = database().await;
        let _scoop = db.start((RepeatedHandler,)).await?;
        let proxy = Proxy::new(b"comes late", Cut::Late);
        let client = Scoop::builder().postgres(proxy.pool(&db).await?).client().await?;
        client.launch(repeated("first")).await?.ends().await?;
        proxy.arm();
        let root = client.launch(repeated("comes late")).await?;
        proxy.has_cut().await;
        assert_eq!(root.ends().await?, Outcome::Committed);
        let refused = "SELECT xact_rollback FROM pg_stat_database WHERE datname = current_database()";
        let before = db.number(refused).await;
        proxy.let_go();
        eventually("the late attempt was refused", async || {
            db.execute("SELECT pg_stat_clear_snapshot()").await;
            db.number(refused).await > before
        })
        .await;
        assert_eq!(db.number("SELECT count(*) FROM scoop.message").await, 2);
        assert_eq!(db.number("SELECT count(*) FROM effect").await, 2);
        Ok(())
    }
}

mod of_a_request {
    use super::*;

    handler! {
        AskedHandler: "asked-handler" on Root;
        step "0" zero => done();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn request_with_a_lost_commit_answer_takes_effect_once() -> Result<()> {
        let db = Database::new().await;
        let _scoop = db.start((AskedHandler,)).await?;
        let proxy = Proxy::new(b"COMMIT\0", Cut::Answer);
        let client = Scoop::builder().postgres(proxy.pool(&db).await?).client().await?;
        let later = client.launch(Root).delay(Duration::from_secs(3600)).await?;
        proxy.arm();
        assert_eq!(client.cancel(later.id(), "not wanted").await?, CancelAnswer::Accepted);
        proxy.has_cut().await;
        assert_eq!(client.cancel(later.id(), "not wanted").await?, CancelAnswer::AlreadyRequested);
        assert!(matches!(later.ends().await?, Outcome::RolledBack(_)));

        let done = client.launch(Root).await?;
        assert_eq!(done.ends().await?, Outcome::Committed);
        proxy.arm();
        assert_eq!(client.rollback(done.id(), "not wanted").await?, RollbackAnswer::Accepted);
        proxy.has_cut().await;
        assert!(matches!(done.ends().await?, Outcome::RolledBack(_)));
        assert_eq!(client.rollback(done.id(), "again").await?, RollbackAnswer::AlreadyRolledBack);
        Ok(())
    }

    /// Another attempt could not count the runs dropped by the first one.
    #[tokio::test(flavor = "multi_thread")]
    async fn retirement_with_a_lost_commit_answer_may_have_happened() -> Result<()> {
        let db = Database::new().await;
        db.start((AskedHandler,)).await?.shutdown().await?;
        let proxy = Proxy::new(b"COMMIT\0", Cut::Answer);
        let client = Scoop::builder().postgres(proxy.pool(&db).await?).client().await?;
        proxy.arm();
        let retired = client.operate().handlers().retire("root-topic", "asked-handler").await;
        let Err(error) = retired else { panic!("its answer came: {retired:?}") };
        assert!(error.may_have_happened(), "{error:?}");
        assert!(error.to_string().contains("may have taken effect"), "{error}");
        assert!(!client.operate().handlers().retire("root-topic", "asked-handler").await?.was_registered);
        Ok(())
    }
}

mod of_a_wake_up {
    use super::*;

    handler! {
        LeftHandler { proxy: Proxy }: "left-handler" on Root;
        #[step(name = "0")]
        async fn zero(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
            scope.launch(Child).await?;
            self.proxy.arm();
            Ok(())
        }

        step "1" one => executes("INSERT INTO effect VALUES (1)");
    }

    handler! {
        LastHandler: "last-handler" on Child;
        step "0" zero => done();
    }

    /// The parent was claimed at once, for a worker that did not learn of it.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_parent_goes_on_although_the_answer_to_its_wake_up_was_lost() -> Result<()> {
        let db = Database::new().await;
        db.execute("CREATE TABLE effect (n int)").await;
        // No other request contains the time of a child's end.
        let proxy = Proxy::new(b"\"at\":\"", Cut::Answer);
        let scoop = Scoop::builder().postgres(proxy.pool(&db).await?);
        let scoop = scoop.only::<LeftHandler>().only::<LastHandler>();
        let scoop = scoop.provide(LeftHandler { proxy: proxy.clone() });
        let scoop = scoop.poll_interval(Duration::from_secs(3600)).start().await?;
        let root = scoop.launch(Root).await?;
        assert_eq!(root.ends().await?, Outcome::Committed);
        proxy.has_cut().await;
        assert_eq!(db.number("SELECT count(*) FROM effect").await, 1);
        Ok(())
    }
}
