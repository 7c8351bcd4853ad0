"""Runs seeds: `python -m outboard.testing.simulate --seeds N`."""
from __future__ import annotations
import argparse, sys, time, traceback
from collections import Counter
from .world import World

def run_seed(seed):
    world = World(seed)
    try:
        world.run()
    finally:
        world.close()
    return world

def main():
    p=argparse.ArgumentParser(); p.add_argument("--seeds",type=int,default=1); p.add_argument("--first",type=int,default=0)
    p.add_argument("--trace",action="store_true"); p.add_argument("--seed",type=int)
    a=p.parse_args()
    first,n=(a.seed,1) if a.seed is not None else (a.first,a.seeds)
    t=time.perf_counter(); marks=Counter(); events=0; bad=Counter(); ex={}
    for seed in range(first,first+n):
        w=World(seed)
        try:
            w.run()
        except BaseException as e:
            if isinstance(e,KeyboardInterrupt): raise
            tb=traceback.extract_tb(e.__traceback__)[-1]
            k=f"{type(e).__name__} {tb.name}:{tb.lineno} {str(e)[:60]}"
            k2=f"{type(e).__name__} {tb.filename[-20:]}:{tb.name}:{tb.lineno}"
            bad[k2]+=1
            ex.setdefault(k2,(seed,str(e)[:300]))
            if a.seed is not None:
                traceback.print_exc()
        finally: w.close()
        if a.trace: print("\n".join(w.lines))
        marks+=w.marks; events+=w.events
    dt=time.perf_counter()-t
    print(f"{n/dt:.1f} seeds/s, {events/n:.0f} events/seed, {dt/events*1e6:.0f} us/event", dict(marks))
    for k,c in bad.most_common(): print(c,k,ex[k])
main()
