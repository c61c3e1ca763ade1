"""The frame and the style sheet of the page. Colours are set once, for light and for dark."""

PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark"><title>{title}</title>
<style>
:root {{ --ink: #1f242b; --soft: #5b6470; --line: #e2e5ea; --card: #f6f7f9; --paper: #fff; --alert: #9a2a14; --on: #fff;
  --warn: #fdf1e3; --c0: #8a6fb0; --c1: #2f6f9f; --c2: #1d7f63; --c3: #b07b12; --c4: #b5403a; --b0: #2f6f9f;
  --b1: #1d7f63;
  --b2: #b07b12; --b3: #8a6fb0 }}
@media (prefers-color-scheme: dark) {{ :root {{ --ink: #e6e9ee; --soft: #a0a9b6; --line: #343b45; --card: #20262e;
  --paper: #161a20; --alert: #e07a5f; --on: #161a20; --warn: #37291a; --c0: #b79de0; --c1: #7db8e6; --c2: #63c9a7;
  --c3: #e0b050;
  --c4: #ee8a80; --b0: #7db8e6; --b1: #63c9a7; --b2: #e0b050; --b3: #b79de0 }} }}
* {{ box-sizing: border-box }}
body {{ font: 16px/1.55 system-ui, -apple-system, "Segoe UI", sans-serif; color: var(--ink); background: var(--paper);
  margin: 0 auto; max-width: 46rem; padding: 1.2rem 1rem 4rem; overflow-wrap: break-word }}
h1 {{ font-size: 1.8rem; line-height: 1.2; margin: 0 }} h2 {{ font-size: 1.25rem; margin: 2.4rem 0 .5rem }}
h3 {{ font-size: 1rem; margin: 0 0 .2rem }} p {{ margin: .5rem 0 }} a {{ color: var(--c1) }}
article + article {{ border-top: 4px solid var(--line); margin-top: 3.5rem; padding-top: 2rem }}
nav ul {{ display: flex; flex-wrap: wrap; gap: .4rem 1.2rem; list-style: none; padding: 0 }}
.sub {{ color: var(--soft); font-size: .92rem }}
.alert {{ background: var(--alert); color: var(--on); font-weight: 600; border-radius: .4rem; padding: .7rem .9rem }}
.tiles {{ display: grid; grid-template-columns: repeat(auto-fit, minmax(9rem, 1fr)); gap: .6rem; margin: 1.2rem 0 }}
.tiles div, .card {{ background: var(--card); border-radius: .5rem; padding: .7rem .9rem }}
.tiles b {{ display: block; font-size: 1.45rem; line-height: 1.2 }} .tiles span {{ color: var(--soft);
  font-size: .86rem }}
.card {{ margin: .7rem 0 }} .card h2 {{ margin-top: 0 }}
dl {{ display: grid; grid-template-columns: 9.5rem 1fr; gap: .2rem .8rem; margin: .4rem 0; font-size: .95rem }}
dt {{ color: var(--soft) }} dd {{ margin: 0; min-width: 0 }}
.bar {{ display: flex; height: 1.9rem; border-radius: .4rem; overflow: hidden; margin: .8rem 0; gap: 2px }}
.bar div {{ color: var(--on); font-size: .85rem; font-weight: 600; display: flex; align-items: center;
  justify-content: center;
  min-width: 0; overflow: hidden; white-space: nowrap }}
h3 i {{ display: inline-block; width: .75rem; height: .75rem; border-radius: .15rem; margin-right: .45rem }}
.b0 {{ background: var(--b0) }} .b1 {{ background: var(--b1) }} .b2 {{ background: var(--b2) }} .b3 {{
  background: var(--b3) }}
.sum, .symbols {{ font-family: ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; font-size: .86rem }}
details {{ margin: .8rem 0 }} summary {{ cursor: pointer; color: var(--c1); font-weight: 600 }}
details .symbols {{ border-left: 3px solid var(--line); padding-left: .8rem }}
.scroll {{ overflow-x: auto; margin: .6rem 0 }}
table {{ border-collapse: collapse; font-size: .92rem; font-variant-numeric: tabular-nums; width: 100% }}
th, td {{ text-align: right; padding: .35rem .55rem; border-bottom: 1px solid var(--line); white-space: nowrap }}
th {{ color: var(--soft); font-weight: 600; white-space: normal; vertical-align: bottom }}
th:first-child, td:first-child {{ text-align: left; padding-left: 0; position: sticky; left: 0;
  background: var(--paper) }}
tr.mark td, tr.mark td:first-child {{ background: var(--card); font-weight: 700 }}
.point {{ margin: .9rem 0 }} .point p {{ margin: 0; color: var(--soft) }}
.point.loud {{ background: var(--warn); border-left: 4px solid var(--alert); border-radius: .3rem;
  padding: .6rem .9rem }}
.point.loud p {{ color: var(--ink) }}
figure {{ margin: .8rem 0 }} figcaption {{ color: var(--soft); font-size: .86rem; text-align: center }}
.plot {{ width: 100%; max-width: 36rem; height: auto; display: block; margin: 0 auto;
  font: 11px system-ui, sans-serif }}
.plot text {{ fill: var(--soft) }} .plot .grid {{ stroke: var(--line) }}
.plot .now {{ stroke: var(--soft); stroke-dasharray: 3 3 }}
.plot polyline {{ fill: none; stroke-width: 2 }} .plot text[class] {{ font-weight: 600 }}
polyline.c0 {{ stroke: var(--c0) }} polyline.c1 {{ stroke: var(--c1) }} polyline.c2 {{ stroke: var(--c2) }}
polyline.c3 {{ stroke: var(--c3) }} polyline.c4 {{ stroke: var(--c4) }}
.plot circle.c0, .plot text.c0 {{ fill: var(--c0) }} .plot circle.c1, .plot text.c1 {{ fill: var(--c1) }}
.plot circle.c2, .plot text.c2 {{ fill: var(--c2) }} .plot circle.c3, .plot text.c3 {{ fill: var(--c3) }}
.plot circle.c4, .plot text.c4 {{ fill: var(--c4) }}
@media (max-width: 30rem) {{ dl {{ grid-template-columns: 1fr; gap: 0 }} dd {{ margin-bottom: .4rem }}
  th, td {{ padding: .35rem .4rem }} table {{ font-size: .86rem }} }}
@media print {{ .alert {{ color: #000; border: 2px solid #000 }} }}
</style></head><body>
{body}
</body></html>
"""
