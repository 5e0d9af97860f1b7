use scoop::prelude::*;

#[derive(Default)]
struct Report;

#[saga(cron = "0 25 * * *")]
#[subscribes(Tick)]
impl Report {
    #[step]
    async fn write(&self, _: &mut Scope<'_>, _: &Tick) -> Result<()> {
        Ok(())
    }
}

fn main() {}
