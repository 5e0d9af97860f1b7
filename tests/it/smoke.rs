use scoop::prelude::*;

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "root-topic")]
struct Root;
#[derive(Message, Serialize, Deserialize)]
#[message(topic = "child-topic")]
struct Child;

#[derive(Default)]
struct RootHandler;

#[saga]
#[subscribes(Root)]
impl RootHandler {
    #[step(name = "0", rollback = undo)]
    async fn zero(&self, scope: &mut Scope<'_>, _m: &Root) -> Result<()> {
        scope.launch(Child).await?;
        sqlx::query("select 1").execute(scope.tx().await?).await?;
        Ok(())
    }
    async fn undo(&self, _scope: &mut Scope<'_>, _m: &Root, why: &Failure) -> Result<()> {
        println!("undo {}", why.report());
        Ok(())
    }
    #[step(name = "1")]
    async fn one(&self, _scope: &mut Scope<'_>, _m: &Root) -> Result<()> {
        if std::env::var("FAIL").is_ok() {
            panic!("ouch");
        }
        Ok(())
    }
}

#[derive(Default)]
struct ChildHandler;

#[saga]
#[subscribes(Child)]
impl ChildHandler {
    #[step(name = "0")]
    async fn zero(&self, _scope: &mut Scope<'_>, _m: &Child) -> Result<()> {
        Ok(())
    }
    #[step(name = "1")]
    async fn one(&self, _scope: &mut Scope<'_>, _m: &Child) -> Result<()> {
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn smoke() -> Result<()> {
    let scoop = Scoop::builder().embedded().start().await?;
    for _ in 0..3 {
        let root = scoop.launch(Root).await?;
        let t = std::time::Instant::now();
        let out = tokio::time::timeout(std::time::Duration::from_secs(5), root.wait()).await;
        println!("{out:?} {:?}", t.elapsed());
        println!("{}", root.tree().await?);
    }
    scoop.shutdown().await;
    Ok(())
}
