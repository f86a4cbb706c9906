# ruff: noqa: E501, SIM905
# fmt: off
"""Facts in Chinese, and generated Chinese sentences to hide them in: no Python installation has Chinese prose."""

from __future__ import annotations

import random

from benchmarks.data.facts import Attribute, Collection, Domain, Language, Link
from benchmarks.data.names import Inventor, Value

_SURNAMES = "郗臧钮莘阙鄢郇蔺谯濮逯冼郏缪靳裘郜宓芮禤"
_GIVEN = "衡墨澜砚霁苇楠骞珩昶茗渊岚樾屹淞笙曜祺蘅湛彧翎瑭溪"
_PLACE_STARTS = "芦桐鹭砚苔萤枫槐麓棠蕨杉樟荻菱雁鹤椿梓栎"
_PLACE_MIDDLES = "湾岭坡渡桥泉坞塘浦屿溪坪岗堰峪沟洲埠"
_PLACE_ENDS = "镇县村乡"
_SHIP_WORDS = "晨澄碧翠静朗素银玄苍"
_SHIP_NOUNS = "鸥帆鲸隼锚潮雀舵桅汐"
_SOFTWARE_WORDS = "织衡筑汇砺启牧巡聚缀"
_SOFTWARE_NOUNS = "链台栈库网册钟阵表匣"


class ChineseInventor(Inventor):
    """Draws Chinese names and figures."""

    def surname(self) -> str:
        return self._fresh(lambda: self._random.choice(_SURNAMES) + "".join(self._random.sample(_GIVEN, 2)))

    def place_name(self) -> str:
        parts = (_PLACE_STARTS, _PLACE_MIDDLES, _PLACE_ENDS)
        return self._fresh(lambda: "".join(self._random.choice(part) for part in parts))

    def ship_name(self) -> str:
        return self._fresh(lambda: self._random.choice(_SHIP_WORDS) + self._random.choice(_SHIP_NOUNS))

    def software_name(self) -> str:
        return self._fresh(lambda: self._random.choice(_SOFTWARE_WORDS) + self._random.choice(_SOFTWARE_NOUNS))

    def quantity(self, size: str, unit: str) -> Value:
        value = super().quantity(size, unit)
        return Value(text=value.accepted[0] + unit, accepted=value.accepted)

    def person(self) -> Value:
        name = self.surname()
        return Value(text=name, accepted=(name,))

    def firm(self) -> Value:
        name = self.place_name()[:2] + self._fresh(lambda: "".join(self._random.sample(_GIVEN, 2)))
        return Value(text=f"{name}公司", accepted=(name,))

    def date(self) -> Value:
        ranges = ((2031, 2079), (1, 13), (13, 29))
        written = self._fresh(lambda: "{}年{}月{}日".format(*(self._random.randrange(*limits) for limits in ranges)))
        year, month, day = (int(part) for part in written.replace("年", " ").replace("月", " ").rstrip("日").split())
        return Value(text=written, accepted=(written, f"{year} {month:02} {day}", f"{year}年{month:02}月{day}日"))

    def version(self) -> Value:
        written = super().version().accepted[0]
        return Value(text=f"{written}版", accepted=(written,))


_DOMAINS = (
    Domain(
        "expedition",
        "{surname}考察队",
        (
            Attribute("person", ("{e}的队长是{v}", "率领{e}的人名叫{v}"), ("{e}的队长是谁？", "谁率领{e}？")),
            Attribute("date", ("{e}于{v}出发", "{v}这一天，{e}启程了"), ("{e}是哪一天出发的？", "{e}何时启程？")),
            Attribute("count 公里", ("{e}徒步走了{v}", "{e}的步行路程共计{v}"), ("{e}徒步走了多少公里？", "{e}的步行路程有多长？")),
            Attribute("place", ("{e}的大本营设在{v}附近", "{e}把大本营扎在了{v}旁边"), ("{e}的大本营设在哪里附近？", "{e}在什么地方扎营？")),
            Attribute("money 元", ("{e}的给养花费了{v}", "{e}为购置给养付出{v}"), ("{e}的给养花费了多少？", "{e}购置给养用了多少钱？")),
        ),
    ),
    Domain(
        "bridge",
        "{place}大桥",
        (
            Attribute("decimal 米", ("{e}的主跨长{v}", "{e}以{v}的主跨越过峡谷"), ("{e}的主跨有多长？", "{e}主跨的长度是多少？")),
            Attribute("person", ("{e}由{v}设计", "{e}的图纸出自{v}之手"), ("{e}是谁设计的？", "谁绘制了{e}的图纸？")),
            Attribute("date", ("{e}于{v}通车", "{v}，第一辆车驶过了{e}"), ("{e}哪一天通车？", "{e}何时通车？")),
            Attribute("money 吨", ("建造{e}用了{v}钢材", "{e}耗用钢材{v}"), ("建造{e}用了多少钢材？", "{e}耗用了多少吨钢材？")),
            Attribute("firm", ("{e}由{v}承建", "承建{e}的合同给了{v}"), ("{e}由哪家公司承建？", "谁承建了{e}？")),
        ),
    ),
    Domain(
        "software",
        "{software}系统",
        (
            Attribute("version", ("{e}从{v}起默认校验备份", "自{v}开始，{e}默认对备份进行校验"), ("{e}从哪个版本起默认校验备份？", "{e}自哪一版开始默认校验备份？")),
            Attribute("person", ("{e}由{v}维护", "{e}的维护者是{v}"), ("{e}由谁维护？", "{e}的维护者是谁？")),
            Attribute("port", ("{e}默认使用{v}号端口", "若不另行设置，{e}监听{v}号端口"), ("{e}默认使用哪个端口？", "{e}默认监听的端口号是多少？")),
            Attribute("place", ("{e}最早在{v}水厂投入使用", "{v}水厂是第一家使用{e}的单位"), ("{e}最早在哪里的水厂投入使用？", "哪里的水厂第一家使用{e}？")),
        ),
    ),
    Domain(
        "ship",
        "{ship}号轮船",
        (
            Attribute("person", ("{e}的船长是{v}", "指挥{e}的船长名叫{v}"), ("{e}的船长是谁？", "谁指挥{e}？")),
            Attribute("date", ("{e}于{v}下水", "{v}举行了{e}的下水仪式"), ("{e}何时下水？", "{e}是哪一天下水的？")),
            Attribute("place", ("{e}的母港是{v}", "{e}登记的母港在{v}"), ("{e}的母港是哪里？", "{e}的母港在什么地方？")),
            Attribute("count 名", ("{e}需要船员{v}", "在{e}上工作的船员有{v}"), ("{e}需要多少名船员？", "{e}上有多少名船员？")),
        ),
    ),
    Domain(
        "contract",
        "{place}供货合同",
        (
            Attribute("money 元", ("{e}规定的年费为{v}", "按照{e}，每年应付{v}"), ("{e}规定的年费是多少？", "按照{e}每年应付多少？")),
            Attribute("date", ("{e}于{v}签署", "双方在{v}签署了{e}"), ("{e}何时签署？", "双方哪一天签署了{e}？")),
            Attribute("count 天", ("解除{e}须提前{v}通知", "{e}的通知期为{v}"), ("解除{e}须提前多少天通知？", "{e}的通知期是多久？")),
            Attribute("person", ("为{e}公证的是{v}", "{e}由公证员{v}会签"), ("谁为{e}公证？", "{e}由哪位公证员会签？")),
        ),
    ),
)

_LINKS = (
    Link("expedition", "ship", ("{a}乘坐{b}渡海", "{b}受雇运送{a}"), "运送{a}的轮船"),
    Link("contract", "software", ("{a}的发票用{b}管理", "{b}负责管理{a}的发票"), "管理{a}发票的系统"),
    Link("ship", "bridge", ("{a}的停泊费由{b}的过桥费支付", "{b}的过桥费用来支付{a}的停泊费"), "以过桥费支付{a}停泊费的大桥"),
)

_COLLECTIONS = (
    Collection(
        "expedition", "place", ("{e}在{v}设了一处补给站", "{v}有{e}的一处补给站"),
        which="{e}在哪些地方设了补给站？请全部列出。", how_many="{e}一共在几个地方设了补给站？",
    ),
    Collection(
        "ship", "place", ("{e}曾停靠{v}", "{v}的码头接待过{e}"),
        which="{e}停靠过哪些地方？请全部列出。", how_many="{e}一共停靠过几个地方？",
    ),
    Collection(
        "contract", "money 元", ("{e}名下付出一笔{v}的款项", "一笔{v}的款项记在{e}名下"),
        how_many="{e}名下一共有几笔款项？", total="{e}名下的款项总共是多少元？", largest="{e}名下最大的一笔款项是多少？",
    ),
)

CHINESE = Language(
    code="zh",
    chars_per_token=1.45,
    domains=_DOMAINS,
    links=_LINKS,
    collections=_COLLECTIONS,
    lead_ins=("关于{e}，留存下来的文字不多。", "下面是有关{e}的一段简短记录。", "常有读者问起{e}，档案里只有零星的说明。", "{e}这一条是用手抄下来的。"),
    hearsay=("有传言说{c}，但没有人说得出来源。", "一封匿名信声称{c}，却没有任何证据。", "食堂里有人讲{c}，不过谁也没有核实过。"),
    supported=("经两名见证人核对的正式登记册写明：{c}。", "根据官方记录，{c}。", "经审计的会议纪要说得很清楚：{c}。"),
    superseded=("最初的草稿仍然认为{c}。", "第一版里曾写道：{c}。", "预先的通告说{c}。"),
    updated=("后来的勘误作了更正：{c}。", "修订版撤回了先前的说法，写明{c}。", "最终通告更正了预先的通告：{c}。"),
    full_stop="。",
    space="",
)

_WHEN = "清晨,傍晚,雨后,入秋以后,农闲时节,集市散场后,下雪之前,天刚亮的时候,节日前夕,午饭过后,涨水的季节,月色好的晚上".split(",")
_WHO = "老木匠,卖豆腐的妇人,几个学徒,年轻的教师,渡口的船工,修钟表的师傅,果园的主人,过路的客商,邮差,磨坊里的伙计,村里的长辈,织布的姐妹".split(",")
_WHERE = "院子里,河堤上,旧仓库旁,石阶边,茶馆门口,桥头,田埂上,祠堂后面,渡口,书铺里,山脚下,晒谷场上".split(",")
_ACTION = "慢慢收拾工具,谈起去年的收成,把晒干的药草装进布袋,修补破了的竹篮,听别人讲旧事,教孩子们辨认树叶,清点剩下的木料,煮一壶浓茶,把门板一块块装好,打磨新做的凳子,商量怎样引水,翻看一本缺页的书".split(
    ","
)
_MOOD = "神情很平静,一句话也没有多说,手上的活却没有停,偶尔抬头看看天色,脸上带着笑意,似乎并不着急,显得十分仔细,像是在想别的事情".split(",")
_THING = "竹器,粗布,陶罐,干菜,木桶,草席,铁锅,灯笼,纸伞,蜂蜜,麻绳,石磨".split(",")
_QUALITY = "结实耐用,做工细致,样子朴素,分量很轻,颜色淡雅,价钱公道,经得起日晒雨淋,越用越顺手".split(",")
_REASON = "因为路不好走,由于天气多变,为了省些力气,按照多年的习惯,考虑到来年的用处,怕夜里起风,听了邻居的劝告,趁着人手还够".split(",")


def draw_chinese(source: random.Random, chars: int) -> list[str]:
    """Paragraphs of generated sentences about nothing in particular, together about `chars` long."""
    pick = source.choice
    paragraphs: list[str] = []
    total = 0
    while total < chars:
        patterns = (
            lambda: f"{pick(_WHEN)}，{pick(_WHO)}在{pick(_WHERE)}{pick(_ACTION)}，{pick(_MOOD)}。",
            lambda: f"{pick(_REASON)}，{pick(_WHO)}总要先{pick(_ACTION)}，然后才肯歇下来。",
            lambda: f"这里的{pick(_THING)}{pick(_QUALITY)}，{pick(_WHO)}常说它{pick(_QUALITY)}。",
            lambda: f"{pick(_WHO)}和{pick(_WHO)}{pick(_WHEN)}常在{pick(_WHERE)}见面，一边{pick(_ACTION)}，一边说起{pick(_THING)}的事。",
            lambda: f"有人喜欢{pick(_THING)}，有人偏爱{pick(_THING)}，{pick(_REASON)}，大家各取所需。",
            lambda: f"{pick(_WHERE)}放着几件{pick(_THING)}，{pick(_WHEN)}就有人来取，{pick(_MOOD)}。",
        )
        paragraph = "".join(pick(patterns)() for _ in range(source.randrange(3, 8)))
        paragraphs.append(paragraph)
        total += len(paragraph) + 2
    return paragraphs
