use scoop::prelude::*;

#[derive(Default)]
struct Report;

#[saga(cron = "0 0 30 2 *")]
#[subscribes(Tick)]
impl Report {
    #[step]
    async fn write(&self, _: &mut Scope<'_>, _: &Tick) -> Result<()> {
        Ok(())
    }
}

fn main() {}
