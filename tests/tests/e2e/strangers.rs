//! A flood of invented keys beside the calls of two organisations.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};
use std::time::{Duration, Instant};

use undolog_tests::run::{Proxy, ProxyOptions};
use undolog_tests::world::Org;
use undolog_tests::{World, eventually, size};
use uuid::Uuid;

/// Calls of each organisation in a row.
const PAUSE: Duration = Duration::from_millis(40);
/// What a process may grow by between the first third of the flood and its end.
const GROWTH_KIB_MAX: u64 = 48 * 1024;

fn client() -> reqwest::Client {
    reqwest::Client::builder().no_proxy().build().unwrap()
}

/// How long each call of one organisation took, until it is told to stop.
async fn call(url: String, key: String, stop: Arc<AtomicBool>) -> Vec<Duration> {
    let (client, mut took) = (client(), Vec::new());
    while !stop.load(Ordering::Relaxed) {
        let began = Instant::now();
        let answer = client.post(&url).header("x-api-key", &key).body("{}").send().await.unwrap();
        let status = answer.status();
        let text = answer.text().await.unwrap();
        assert_eq!(status, 200, "a valid key was refused: {text}");
        took.push(began.elapsed());
        tokio::time::sleep(PAUSE).await;
    }
    took
}

fn percentile(mut took: Vec<Duration>) -> Duration {
    took.sort();
    took[(took.len() * 99 / 100).min(took.len() - 1)]
}

fn rss_kib(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Calls of all organisations for so long; answers their 99th percentile.
async fn serve(url: &str, keys: &[String], time: Duration) -> Duration {
    let stop = Arc::new(AtomicBool::new(false));
    let calls = keys
        .iter()
        .map(|key| tokio::spawn(call(format!("{url}/sessions"), key.clone(), Arc::clone(&stop))));
    let calls: Vec<_> = calls.collect();
    tokio::time::sleep(time).await;
    stop.store(true, Ordering::Relaxed);
    let mut took = Vec::new();
    for call in calls {
        took.extend(call.await.unwrap());
    }
    percentile(took)
}

/// Presents a new invented key so many times a second, until it is told to stop.
async fn flood(url: String, per_second: usize, stop: Arc<AtomicBool>) -> [usize; 3] {
    let counted = Arc::new([const { AtomicUsize::new(0) }; 3]);
    let (client, mut every) = (client(), tokio::time::interval(Duration::from_millis(10)));
    while !stop.load(Ordering::Relaxed) {
        every.tick().await;
        for _ in 0..per_second / 100 {
            let key = format!(
                "ulk_{}{}",
                Uuid::new_v4().simple(),
                &Uuid::new_v4().simple().to_string()[..16]
            );
            let request = client.get(format!("{url}/sessions")).header("x-api-key", key);
            let counted = Arc::clone(&counted);
            tokio::spawn(async move {
                let place = match request.send().await.map(|answer| answer.status().as_u16()) {
                    Ok(401) => 0,
                    Ok(429) => 1,
                    _ => 2,
                };
                counted[place].fetch_add(1, Ordering::Relaxed);
            });
        }
    }
    [0, 1, 2].map(|place| counted[place].load(Ordering::Relaxed))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_invented_keys_is_noticed_by_nobody() {
    let seconds = size("UNDOLOG_TEST_FLOOD_SECONDS", 4);
    let per_second = size("UNDOLOG_TEST_FLOOD_PER_SECOND", 200);
    let times_max = size("UNDOLOG_TEST_FLOOD_P99_TIMES", 0);
    let world = World::start().await;
    let other = Org::create(world.pool(), "other").await;
    let proxy = Proxy::start(&world.engines[0].grpc_url(), ProxyOptions::default()).await;
    let mut keys = Vec::new();
    for org in [&world.org, &other] {
        keys.push(org.key(world.pool(), "agent", "agent-1").await);
    }
    let (url, time) = (proxy.url(""), Duration::from_secs(seconds as u64));
    let quiet = serve(&url, &keys, time).await;
    let stop = Arc::new(AtomicBool::new(false));
    let flooding = tokio::spawn(flood(url.clone(), per_second, Arc::clone(&stop)));
    let processes =
        [("the proxy", proxy.process.id()), ("the engine", world.engines[0].process.id())];
    let first = serve(&url, &keys, time / 3).await;
    let before = processes.map(|(_, id)| rss_kib(id));
    let then = serve(&url, &keys, time - time / 3).await;
    let after = processes.map(|(_, id)| rss_kib(id));
    // A key that nobody has seen yet, in the middle of it.
    let fresh = other.key(world.pool(), "agent", "agent-2").await;
    eventually("a key that nobody has seen yet is served", || async {
        let asked = client().get(format!("{url}/sessions")).header("x-api-key", &fresh);
        let answer = asked.send().await.map_err(|error| error.to_string())?;
        if answer.status() == 200 { Ok(()) } else { Err(answer.status().to_string()) }
    })
    .await;
    stop.store(true, Ordering::Relaxed);
    let [unknown, limited, lost] = flooding.await.unwrap();
    let asked = unknown + limited + lost;
    println!(
        "{asked} invented keys in {seconds} s: {unknown} unknown, {limited} limited, {lost} else; \
         p99 of valid keys {quiet:?} before, {first:?} and {then:?} during the flood; \
         KiB of proxy and engine {before:?} then {after:?}"
    );
    assert!(limited > 0, "nobody was limited");
    for (((what, _), before), after) in processes.iter().zip(before).zip(after) {
        assert!(after < before + GROWTH_KIB_MAX, "{what} grew from {before} to {after} KiB");
    }
    // Only the long run measures: what else this machine does is in these figures.
    if times_max > 0 {
        let most = quiet.max(Duration::from_millis(5)) * u32::try_from(times_max).unwrap();
        assert!(then <= most, "p99 {then:?} during the flood, {quiet:?} before");
    }
}
