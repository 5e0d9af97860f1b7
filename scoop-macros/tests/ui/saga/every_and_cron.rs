use scoop::prelude::*;

#[derive(Default)]
struct Report;

#[saga(every = "1h", cron = "0 3 * * *")]
#[subscribes(Tick)]
impl Report {
    #[step]
    async fn write(&self, _: &mut Scope<'_>, _: &Tick) -> Result<()> {
        Ok(())
    }
}

fn main() {}
