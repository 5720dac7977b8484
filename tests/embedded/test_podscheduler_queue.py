"""The order in which waiting pods are tried, and when those that failed are tried again."""

from pykueue.embedded.podscheduler.podinfo import PodReader
from pykueue.embedded.podscheduler.queue import Queue

READER = PodReader()


def pod(name, priority=0):
    metadata = {"name": name, "namespace": "default", "uid": name}
    return READER.read({"metadata": metadata, "spec": {"containers": [], "priority": priority}})


def drain(queue, now):
    """Uids of all pods that are handed out now, each of which finds a place."""
    found = []
    while (one := queue.pop(now)) is not None:
        found.append(one.uid)
        queue.placed(one.uid, now)
    return found


def fail(queue, now, key="k"):
    """Uids of all pods that are handed out now, none of which finds a place."""
    found = []
    while (one := queue.pop(now)) is not None:
        found.append(one.uid)
        queue.failed(one.uid, key, now)
    return found


def wake_all_groups(queue, now):
    for group in queue.groups():
        queue.wake(group, now)


def test_priority_goes_first_then_the_time_of_entry():
    queue = Queue()
    for at, (name, priority) in enumerate([("a", 0), ("b", 5), ("c", 0), ("d", 5)]):
        queue.add(pod(name, priority), at)
    assert drain(queue, 10) == ["b", "d", "a", "c"]
    assert queue.next_time() is None


def test_a_failed_pod_sleeps_until_something_could_help_and_its_back_off_is_over():
    queue = Queue()
    queue.add(pod("a"), 0)
    assert fail(queue, 0) == ["a"]
    assert drain(queue, 5) == []
    wake_all_groups(queue, 5)
    assert fail(queue, 5) == ["a"]
    wake_all_groups(queue, 6)
    assert queue.next_time() == 7
    assert drain(queue, 6) == []
    assert drain(queue, 7) == ["a"]


def test_back_off_doubles_from_one_to_ten_seconds():
    queue = Queue()
    queue.add(pod("a"), 0)
    now, waits = 0.0, []
    for _ in range(6):
        assert fail(queue, now) == ["a"]
        wake_all_groups(queue, now)
        waits.append(queue.next_time() - now)
        now = queue.next_time()
    assert waits == [1, 2, 4, 8, 10, 10]


def test_one_scout_is_sent_for_all_that_wait_for_the_same():
    queue = Queue()
    for name in "abcdef":
        queue.add(pod(name), 0)
    assert fail(queue, 0) == list("abcdef")
    wake_all_groups(queue, 5)
    first = queue.pop(5)
    assert (first.uid, queue.pop(5)) == ("a", None)
    queue.placed("a", 5)
    second = queue.pop(5)
    assert second.uid == "b"
    queue.failed("b", "k", 5)
    assert queue.pop(5) is None
    wake_all_groups(queue, 8)
    assert drain(queue, 8) == ["c", "d", "e", "f", "b"]


def test_wake_up_during_the_back_off_is_not_lost():
    queue = Queue()
    for name in "ab":
        queue.add(pod(name), 0)
    fail(queue, 0)
    wake_all_groups(queue, 0.5)
    wake_all_groups(queue, 0.6)
    assert queue.next_time() == 1
    assert drain(queue, 1) == ["a", "b"]


def test_a_scout_that_goes_away_is_replaced():
    queue = Queue()
    for name in "ab":
        queue.add(pod(name), 0)
    fail(queue, 0)
    wake_all_groups(queue, 5)
    queue.remove("a", 5)
    assert drain(queue, 5) == ["b"]
    assert len(queue) == 0


def test_a_scout_that_fails_for_another_reason_does_not_speak_for_the_rest():
    queue = Queue()
    for name in "ab":
        queue.add(pod(name), 0)
    fail(queue, 0)
    wake_all_groups(queue, 5)
    queue.failed(queue.pop(5).uid, "another", 5)
    assert queue.pop(5).uid == "b"


def test_unlike_pods_are_woken_apart():
    queue = Queue()
    for name in "ab":
        queue.add(pod(name), 0)
        queue.failed(queue.pop(0).uid, name, 0)
    for group in queue.groups():
        if group.key == "b":
            queue.wake(group, 5)
    assert drain(queue, 5) == ["b"]


def test_after_five_minutes_every_pod_is_tried_again():
    queue = Queue()
    for name in "ab":
        queue.add(pod(name), 0)
    fail(queue, 0)
    assert queue.next_time() == 300
    assert drain(queue, 299) == []
    assert drain(queue, 300) == ["a", "b"]


def test_a_pod_whose_node_could_not_be_had_comes_back_after_a_back_off():
    queue = Queue()
    queue.add(pod("a"), 0)
    queue.placed(queue.pop(0).uid, 0)
    queue.retry(pod("a"), 0)
    assert drain(queue, 0.5) == []
    assert queue.next_time() == 1
    assert drain(queue, 1) == ["a"]


def test_a_changed_pod_is_tried_at_once():
    queue = Queue()
    queue.add(pod("a"), 0)
    fail(queue, 0)
    queue.add(pod("a"), 0.1)
    assert drain(queue, 0.1) == ["a"]
